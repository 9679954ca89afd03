//! PostgreSQL's own pglz and the system's liblz4, loaded at run time where they are installed.
//!
//! Debian's `postgresql-server-dev` brings `libpgcommon_shlib.a`, the position-independent build of
//! `src/common` (`scripts/test` fetches that file alone); `cc` links the one object that is needed into a
//! shared library.
#![allow(unsafe_code)]

use libloading::{Library, Symbol};
use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::process::Command;
use toast_format::codec::pglz::Strategy;

/// `PGLZ_Strategy`.
#[repr(C)]
struct CStrategy {
    min_input_size: i32,
    max_input_size: i32,
    min_comp_rate: i32,
    first_success_by: i32,
    match_size_good: i32,
    match_size_drop: i32,
}

type Compress = unsafe extern "C" fn(*const c_char, i32, *mut c_char, *const CStrategy) -> i32;
type Decompress = unsafe extern "C" fn(*const c_char, i32, *mut c_char, i32, bool) -> i32;
type MaximumCompressedSize = unsafe extern "C" fn(i32, i32) -> i32;

/// PostgreSQL's pglz. Its history is static: no two threads may compress at a time.
pub(crate) struct Pglz {
    compress: Compress,
    decompress: Decompress,
    maximum_compressed_size: MaximumCompressedSize,
    /// What `pg_config --version` says.
    pub(crate) version: String,
    /// The functions above live in it.
    _library: Library,
    _directory: tempfile::TempDir,
}

impl Pglz {
    /// `None` where the library, `pg_config` or a C compiler is missing.
    pub(crate) fn load() -> Option<Pglz> {
        let version = output(Command::new("pg_config").arg("--version"))?;
        let archive = ["--pkglibdir", "--libdir"]
            .iter()
            .filter_map(|option| output(Command::new("pg_config").arg(option)))
            .chain(newest_debian_directory())
            .map(PathBuf::from)
            .chain(caches().map(|cache| cache.join("pgcommon")))
            .map(|directory| directory.join("libpgcommon_shlib.a"))
            .find(|archive| archive.exists())?;
        let directory = tempfile::tempdir().ok()?;
        let shared = directory.path().join("libpglz.so");
        let linked = Command::new("cc")
            .args(["-shared", "-Wl,-u,pglz_compress", "-o"])
            .args([&shared, &archive])
            .status()
            .ok()?;
        if !linked.success() {
            return None;
        }
        // SAFETY: the library has no initialisers, and the types are those of pg_lzcompress.h. The
        // copied function pointers live no longer than the library, which is kept beside them.
        unsafe {
            let library = Library::new(&shared).ok()?;
            let compress: Symbol<'_, Compress> = library.get(b"pglz_compress\0").ok()?;
            let decompress: Symbol<'_, Decompress> = library.get(b"pglz_decompress\0").ok()?;
            let size: Symbol<'_, MaximumCompressedSize> =
                library.get(b"pglz_maximum_compressed_size\0").ok()?;
            Some(Pglz {
                compress: *compress,
                decompress: *decompress,
                maximum_compressed_size: *size,
                version,
                _library: library,
                _directory: directory,
            })
        }
    }

    /// `pglz_compress` into `dst`, which is made large enough; `None` where it refuses. Exclusive,
    /// since C's history is static.
    pub(crate) fn compress(
        &mut self,
        src: &[u8],
        dst: &mut Vec<u8>,
        strategy: &Strategy,
    ) -> Option<usize> {
        let is_always = *strategy == Strategy::ALWAYS;
        let strategy = CStrategy {
            min_input_size: if is_always { 0 } else { 32 },
            max_input_size: i32::MAX,
            min_comp_rate: if is_always { 0 } else { 25 },
            first_success_by: if is_always { i32::MAX } else { 1024 },
            match_size_good: 128,
            match_size_drop: if is_always { 6 } else { 10 },
        };
        if dst.len() < src.len() + 4 {
            dst.resize(src.len() + 4, 0);
        }
        // SAFETY: dst has PGLZ_MAX_OUTPUT(src.len()) bytes; nothing else compresses meanwhile.
        let size = unsafe {
            let src_at = src.as_ptr().cast();
            let dst_at = dst.as_mut_ptr().cast();
            (self.compress)(src_at, src.len() as i32, dst_at, &raw const strategy)
        };
        usize::try_from(size).ok()
    }

    /// `pglz_decompress`; `None` where it finds the data corrupt.
    pub(crate) fn decompress(&self, src: &[u8], dst: &mut [u8], complete: bool) -> Option<usize> {
        // SAFETY: the lengths are those of the slices; since PostgreSQL 14 the function reads and
        // writes nothing outside them whatever they hold.
        let size = unsafe {
            let src_at = src.as_ptr().cast();
            let dst_at = dst.as_mut_ptr().cast();
            (self.decompress)(src_at, src.len() as i32, dst_at, dst.len() as i32, complete)
        };
        usize::try_from(size).ok()
    }

    pub(crate) fn maximum_compressed_size(&self, raw: usize, compressed: usize) -> usize {
        // SAFETY: a pure function of two integers.
        let size = unsafe { (self.maximum_compressed_size)(raw as i32, compressed as i32) };
        usize::try_from(size).unwrap_or(0)
    }
}

type Lz4Compress = unsafe extern "C" fn(*const c_char, *mut c_char, c_int, c_int) -> c_int;
type Lz4Decompress = unsafe extern "C" fn(*const c_char, *mut c_char, c_int, c_int) -> c_int;
type Lz4Partial = unsafe extern "C" fn(*const c_char, *mut c_char, c_int, c_int, c_int) -> c_int;
type Lz4Version = unsafe extern "C" fn() -> c_int;

/// The system's liblz4, through the functions that PostgreSQL calls.
pub(crate) struct Lz4 {
    compress: Lz4Compress,
    decompress: Lz4Decompress,
    partial: Lz4Partial,
    pub(crate) version: String,
    _library: Library,
}

impl Lz4 {
    /// `None` where liblz4 is missing.
    pub(crate) fn load() -> Option<Lz4> {
        // SAFETY: the library has no initialisers, and the types are those of lz4.h.
        unsafe {
            let library = Library::new("liblz4.so.1").ok()?;
            let compress: Symbol<'_, Lz4Compress> = library.get(b"LZ4_compress_default\0").ok()?;
            let decompress: Symbol<'_, Lz4Decompress> =
                library.get(b"LZ4_decompress_safe\0").ok()?;
            let partial: Symbol<'_, Lz4Partial> =
                library.get(b"LZ4_decompress_safe_partial\0").ok()?;
            let version: Symbol<'_, Lz4Version> = library.get(b"LZ4_versionNumber\0").ok()?;
            let number = version();
            let version = format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100);
            Some(Lz4 {
                compress: *compress,
                decompress: *decompress,
                partial: *partial,
                version,
                _library: library,
            })
        }
    }

    /// `LZ4_compress_default` into `dst`, which is made large enough.
    pub(crate) fn compress(&self, src: &[u8], dst: &mut Vec<u8>) -> usize {
        let bound = src.len() + src.len() / 255 + 16;
        if dst.len() < bound {
            dst.resize(bound, 0);
        }
        // SAFETY: the lengths are those of the slices.
        let size = unsafe {
            let src_at = src.as_ptr().cast();
            let dst_at = dst.as_mut_ptr().cast();
            (self.compress)(src_at, dst_at, src.len() as c_int, dst.len() as c_int)
        };
        usize::try_from(size).unwrap_or(0)
    }

    /// `LZ4_decompress_safe`; `None` where it finds the data corrupt.
    pub(crate) fn decompress(&self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // SAFETY: the lengths are those of the slices.
        let size = unsafe {
            let src_at = src.as_ptr().cast();
            let dst_at = dst.as_mut_ptr().cast();
            (self.decompress)(src_at, dst_at, src.len() as c_int, dst.len() as c_int)
        };
        usize::try_from(size).ok()
    }

    /// `LZ4_decompress_safe_partial` until `dst` is full.
    pub(crate) fn decompress_prefix(&self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let len = dst.len() as c_int;
        // SAFETY: the lengths are those of the slices.
        let size = unsafe {
            let src_at = src.as_ptr().cast();
            let dst_at = dst.as_mut_ptr().cast();
            (self.partial)(src_at, dst_at, src.len() as c_int, len, len)
        };
        usize::try_from(size).ok()
    }
}

/// What a command prints, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Where `scripts/test` keeps what it fetched (`cache_dir` in `scripts/lib.sh`).
fn caches() -> impl Iterator<Item = PathBuf> {
    let of = |name, below: &str| std::env::var_os(name).map(|dir| PathBuf::from(dir).join(below));
    let given = [
        of("TOASTCTL_CACHE", ""),
        of("XDG_CACHE_HOME", "toastctl"),
        of("HOME", ".cache/toastctl"),
        Some("/var/cache/toastctl".into()),
    ];
    given.into_iter().flatten()
}

/// Where Debian keeps the libraries of the newest PostgreSQL installed.
fn newest_debian_directory() -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let libraries = versions.flatten().map(|version| version.path().join("lib"));
    let newest: Option<PathBuf> =
        libraries.filter(|path| path.join("libpgcommon_shlib.a").exists()).max();
    newest?.into_os_string().into_string().ok()
}
