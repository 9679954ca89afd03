//! The `toastctl` command.

fn main() -> std::process::ExitCode {
    toastctl::main()
}
