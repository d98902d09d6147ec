# What tools/demo and tools/check need of the system, and how it is installed. Sourced by both, not run.
# A row is a Debian package and what shows that it is there already: a command, a header that the C compiler finds, or a
# library that the loader finds, or a module of Python.
# shellcheck shell=bash disable=SC2034

packages_build='
gcc                 cc
libc6-dev           stdio.h
meson               meson
ninja-build         ninja
pkg-config          pkg-config
libcpuinfo-dev      cpuinfo.h
libjansson-dev      jansson.h
libutf8proc-dev     utf8proc.h
libzip-dev          zip.h
zlib1g-dev          zlib.h
libspng-dev         spng.h
libjpeg-dev         jpeglib.h
libwebp-dev         webp/mux.h
'
# With these there are OpenCL and Vulkan in a build, for whatever driver the machine has; CUDA needs none.
packages_gpu='
opencl-headers      CL/cl.h
libvulkan-dev       vulkan/vulkan_core.h
glslc               glslc
'
# OpenBLAS, oneDNN and CLBlast are candidates that the library opens when they are there; their tests need them. Kernel texts run on PoCL and
# go through the GLSL compiler; NVRTC, which compiles them for CUDA, and a glslang with cooperative matrices come as Python wheels.
packages_check='
g++                 c++
libcmocka-dev       cmocka.h
libopenblas0        libopenblas.so.0
libdnnl-dev         oneapi/dnnl/dnnl.h
ocl-icd-opencl-dev  libOpenCL.so
pocl-opencl-icd     libpocl.so.2
libclblast1         libclblast.so.1
libvulkan1          libvulkan.so.1
mesa-vulkan-drivers libvulkan_lvp.so
vulkan-validationlayers libVkLayer_khronos_validation.so
spirv-tools         spirv-val
glslang-dev         glslang/Include/glslang_c_interface.h
python3-venv        python3:ensurepip
'
# Of the whole check: Debian 13 has no oclgrind any more, and where clang is missing gcc's sanitizers serve, without threads and fuzz targets.
packages_whole='
oclgrind            oclgrind
clang               clang
lld                 ld.lld
'
# Builds for aarch64 and runs them; the libraries come from tools/cross/sysroot, which leaves the system as it is.
packages_cross='
gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
qemu-user             qemu-aarch64
'

# jpeglib.h and cmocka.h need others before them. No `grep -q` behind a pipe, here and in the other scripts: it stops reading at the first hit,
# the writer dies of the broken pipe, and under pipefail what was found counts as missing.
packages_present() {
    case $1 in
        *.h) printf '#include <stddef.h>\n#include <stdio.h>\n#include <stdarg.h>\n#include <setjmp.h>\n#include <stdint.h>\n#include <%s>\n' "$1" |
                 cc -E -x c - >/dev/null 2>&1 ;;
        python3:*) python3 -c "import ${1#python3:}" >/dev/null 2>&1 ;;
        *.so | *.so.*) PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -F "$1 (" >/dev/null ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# packages_missing ROWS: the packages that are not there, on one line.
packages_missing() {
    local package proof
    while read -r package proof; do
        [ -z "$package" ] || packages_present "$proof" || printf '%s ' "$package"
    done <<< "$1"
}

# packages_install ROWS: installs what is missing; asks apt for nothing when all is there. Needs no standard input.
packages_install() {
    local missing as_root=''
    missing=$(packages_missing "$1")
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        printf 'missing: %s\nThis system has no apt-get. Install what these Debian packages hold, then call again.\n' "$missing" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
            as_root='sudo'
        else
            printf 'missing: %s\nNeither root nor sudo without a password. As root: apt-get install %s\n' "$missing" "$missing" >&2
            return 1
        fi
    fi
    printf 'installing: %s\n' "$missing"
    # shellcheck disable=SC2086  # one word per package, and no word when root
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update ||
        echo 'apt-get update failed; going on with the package lists that are there' >&2
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends install $missing >/dev/null || {
        printf 'apt-get could not install: %s\n' "$missing" >&2
        return 1
    }
    missing=$(packages_missing "$1")
    [ -z "$missing" ] || { printf 'installed, but not found by the compiler or on PATH: %s\n' "$missing" >&2; return 1; }
}

# packages_install_optional ROWS WHAT: the same of what can be done without; says so before sudo asks for a password and apt waits.
packages_install_optional() {
    [ -n "$(packages_missing "$1")" ] || return 0
    printf 'for %s, which are optional:\n' "$2"
    packages_install "$1" || printf 'going on without %s\n' "$2" >&2
}

# packages_install_known ROWS: those of them that the system's package lists have; without the others goes what needs them.
packages_install_known() {
    local package proof known=''
    while read -r package proof; do
        [ -z "$package" ] || ! LC_ALL=C apt-cache policy "$package" 2>/dev/null | grep 'Candidate: [0-9]' >/dev/null || known+="$package $proof"$'\n'
    done <<< "$1"
    packages_install "$known"
}

# build_setup FOLDER OPTION...: configures a build folder of this source tree, once. It is made anew when it belongs to
# another tree (a copy), when its options have changed since, and when setting it up was broken off. The stamp names the tree: meson's JSON
# has other letters than ASCII escaped, and serves folders that were set up by hand.
build_setup() {
    local folder=$1 stamp=$1/.tern-options
    shift
    local options
    options="$(pwd -P) ${CC:-} ${CXX:-} $*"
    if [ -f "$folder/build.ninja" ]; then
        if [ -f "$stamp" ]; then
            [ "$(cat "$stamp")" != "$options" ] || return 0
        elif grep -qF "\"source\": \"$(pwd -P)\"" "$folder/meson-info/meson-info.json"; then
            return 0
        fi
    fi
    [ ! -d "$folder/meson-private" ] || rm -rf "$folder"
    meson setup "$folder" "$@" && printf '%s\n' "$options" > "$stamp"
}

# build_alone FOLDER COMMAND...: what sets up and builds a folder, when no other run does.
build_alone() {
    local folder=$1
    shift
    (
        ! command -v flock >/dev/null 2>&1 || flock 9
        "$@" 9>&-
    ) 9> "$folder.lock"
}
