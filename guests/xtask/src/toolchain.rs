//! What builds the Rust guests: the target `wasm32-wasip2` of the Rust in use, or Debian's packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::{command, places};

/// The target that the guests are built for.
pub(crate) const TARGET: &str = "wasm32-wasip2";

/// Debian's packages, for machines that reach no Rust distribution server.
const DEBIAN_PACKAGES: [&str; 5] = ["rustc-web", "cargo-web", "rust-web-src", "wasi-libc", "lld-22"];

/// What of Debian's packages is used.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_STD: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";
const DEBIAN_LIBC: &str = "/usr/lib/wasm32-wasi";
const DEBIAN_LD: &str = "/usr/bin/wasm-ld-22";

/// A way to build the guests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Toolchain {
    /// The Rust in use has the target.
    Installed,
    /// Debian's Rust builds the standard library too. It comes without a linker for components: the Rust in use has one.
    Debian { linker: PathBuf },
}

impl Toolchain {
    /// Returns the way that this machine has; none when something has to be installed first.
    pub(crate) fn find() -> Result<Option<Self>> {
        let sysroot = sysroot()?;
        if sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir() {
            return Ok(Some(Self::Installed));
        }
        let linker = sysroot.join("lib/rustlib").join(host()?).join("bin/wasm-component-ld");
        let needed =
            [Path::new(DEBIAN_CARGO), Path::new(DEBIAN_RUSTC), Path::new(DEBIAN_STD), Path::new(DEBIAN_LIBC), Path::new(DEBIAN_LD)];
        if linker.is_file() && needed.iter().all(|path| path.exists()) {
            return Ok(Some(Self::Debian { linker }));
        }
        Ok(None)
    }

    /// Returns the way that this machine has, after installing one when there is none.
    pub(crate) fn find_or_install() -> Result<Self> {
        if let Some(toolchain) = Self::find()? {
            return Ok(toolchain);
        }
        println!("setup: adding the Rust target {TARGET}");
        command::succeeds_within(Duration::from_secs(60), Command::new("rustup").args(["target", "add", TARGET]));
        if let Some(toolchain) = Self::find()? {
            return Ok(toolchain);
        }
        if command::exists("apt-get") && is_root() {
            println!("setup: that didn't work; installing Debian's packages {}", DEBIAN_PACKAGES.join(" "));
            let apt = |arguments: &[&str]| {
                command::run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").arg("-qq").args(arguments))
            };
            apt(&["update"])?;
            apt(&[&["install", "-y", "--no-install-recommends"], &DEBIAN_PACKAGES[..]].concat())?;
        }
        match Self::find()? {
            Some(toolchain) => Ok(toolchain),
            None => bail!(
                "no toolchain for the guests. Install one of:\n  rustup target add {TARGET}\n  apt-get install {} (as root, on Debian 12 or later; \
                 the linker wasm-component-ld comes with rustup's Rust)",
                DEBIAN_PACKAGES.join(" ")
            ),
        }
    }

    /// Returns a cargo command of this toolchain, without arguments. Its `build` takes [`Self::build_arguments`].
    pub(crate) fn cargo(&self) -> Result<Command> {
        let mut cargo = match self {
            Self::Installed => Command::new("cargo"),
            Self::Debian { linker } => {
                let mut cargo = Command::new(DEBIAN_CARGO);
                let flags = format!("-L{DEBIAN_LIBC} -C link-self-contained=no -C link-arg=--wasm-ld-path -C link-arg={DEBIAN_LD}");
                cargo
                    .env("RUSTC", DEBIAN_RUSTC)
                    // Building the standard library is an unstable feature of cargo.
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_TARGET_WASM32_WASIP2_LINKER", linker_with_startup(linker)?)
                    .env("CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS", flags);
                cargo
            }
        };
        // Flags that someone set for programs of this machine would replace ours.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS", "RUSTC_WRAPPER"] {
            cargo.env_remove(name);
        }
        // What cargo set for this program isn't true of another cargo.
        cargo.env_remove("CARGO");
        Ok(cargo)
    }

    /// Returns the arguments of `cargo build` for this toolchain.
    pub(crate) fn build_arguments(&self) -> Vec<&'static str> {
        match self {
            Self::Installed => vec!["--target", TARGET],
            Self::Debian { .. } => vec!["--target", TARGET, "-Zbuild-std=std,panic_abort"],
        }
    }
}

/// Writes a linker that adds the start-up objects of the C library, and returns its path. Rust's own copy of the library would have
/// brought them. A command gets the library's object too: its own leaves constructors to the linker, which then runs them again at each
/// exported call, and the one for preopened directories traps when the host asks for memory. With the library's they run once, first.
fn linker_with_startup(linker: &Path) -> Result<PathBuf> {
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*' --no-entry '*) start= ;;\n*) start={DEBIAN_LIBC}/crt1-command.o ;;\nesac\n\
         exec '{}' \"$@\" {DEBIAN_LIBC}/crt1-reactor.o $start\n",
        linker.display()
    );
    // Cargo and rustc go by the file's name to know what kind of linker it is.
    let path = places::target().join("tools/wasm-component-ld");
    if fs::read_to_string(&path).is_ok_and(|old| old == script) {
        return Ok(path);
    }
    let parent = path.parent().context("the linker has no parent directory")?;
    fs::create_dir_all(parent).with_context(|| format!("can't create {}", parent.display()))?;
    let fresh = path.with_extension("new");
    fs::write(&fresh, script).with_context(|| format!("can't write {}", fresh.display()))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}

fn sysroot() -> Result<PathBuf> {
    Ok(command::output(Command::new("rustc").args(["--print", "sysroot"]))?.into())
}

fn host() -> Result<String> {
    let version = command::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

fn is_root() -> bool {
    command::output(Command::new("id").arg("-u")).is_ok_and(|id| id == "0")
}
