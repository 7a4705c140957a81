//! What the host links, and what a component wants: compared before anything runs, so that a component that doesn't fit is refused with
//! the names of what it lacks and the reason, instead of a linker's "no matching implementation".

use std::fmt;

use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::WasiView;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView};
use wasmtime_wasi::p2::bindings as wasi;
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView};

use super::state::TurnState;
use crate::capability::bindings::landfall::agent;
use crate::capability::bindings::wasi::config::store as config_store;
use crate::capability::checkpoints::HasCheckpoints;
use crate::capability::config::HasConfig;
use crate::capability::fetch::HasFetch;
use crate::capability::progress::HasProgress;
use crate::capability::repository::HasRepository;
use crate::capability::schedules::HasSchedules;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::grants::{Capability, Grants};

/// The version of `landfall:agent` that this host has.
pub const AGENT_VERSION: &str = "0.1.0";
/// The version of WASI that this host has. Components built for any 0.2 from 0.2.3 on fit.
pub const WASI_VERSION: &str = "0.2.12";
/// The version of `wasi:config` that this host has.
pub const CONFIG_VERSION: &str = "0.2.0-rc.1";

/// The interfaces that are linked, by package.
const LINKED: &[(&str, &str, &[&str])] = &[
    ("landfall:agent", AGENT_VERSION, &["checkpoints", "fetch", "progress", "repository", "schedules", "types"]),
    ("wasi:config", CONFIG_VERSION, &["store"]),
    (
        "wasi:cli",
        WASI_VERSION,
        &[
            "environment",
            "exit",
            "stderr",
            "stdin",
            "stdout",
            "terminal-input",
            "terminal-output",
            "terminal-stderr",
            "terminal-stdin",
            "terminal-stdout",
        ],
    ),
    ("wasi:clocks", WASI_VERSION, &["monotonic-clock", "wall-clock"]),
    ("wasi:filesystem", WASI_VERSION, &["preopens", "types"]),
    ("wasi:http", WASI_VERSION, &["outgoing-handler", "types"]),
    ("wasi:io", WASI_VERSION, &["error", "poll", "streams"]),
    ("wasi:random", WASI_VERSION, &["insecure", "insecure-seed", "random"]),
    (
        "wasi:sockets",
        WASI_VERSION,
        &["instance-network", "ip-name-lookup", "network", "tcp", "tcp-create-socket", "udp", "udp-create-socket"],
    ),
];

/// Something that a component imports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Import {
    /// The whole name, such as `wasi:cli/stdin@0.2.6`.
    pub name: String,
}

impl Import {
    /// Returns package, interface and version; none for a name of another form.
    fn parts(&self) -> Option<(&str, &str, Option<&str>)> {
        let (package, rest) = self.name.split_once('/')?;
        Some(match rest.split_once('@') {
            Some((interface, version)) => (package, interface, Some(version)),
            None => (package, rest, None),
        })
    }

    /// Returns the capability that it needs a grant for; none when it needs none.
    #[must_use]
    pub fn capability(&self) -> Option<Capability> {
        match self.parts()? {
            ("landfall:agent", "checkpoints", _) => Some(Capability::Checkpoints),
            ("landfall:agent", "progress", _) => Some(Capability::Progress),
            ("landfall:agent", "repository", _) => Some(Capability::Repository),
            ("wasi:config", "store", _) => Some(Capability::Config),
            _ => None,
        }
    }

    /// Says why this host doesn't link it; none when it does.
    fn missing(&self) -> Option<String> {
        let Some((package, interface, version)) = self.parts() else {
            return Some("is not an interface of a package; this host links only such".to_owned());
        };
        let Some((_, ours, interfaces)) = LINKED.iter().find(|(name, _, _)| *name == package) else {
            return Some(match package {
                _ if package.starts_with("wasi:") => format!("is not linked: of WASI this host has {}", linked_of("wasi:")),
                _ => "is not linked: this host doesn't know the package".to_owned(),
            });
        };
        if let Some(version) = version
            && !compatible(version, ours)
        {
            let advice = if package.starts_with("wasi:") && package != "wasi:config" {
                "build the component for WASI 0.2 (`--target wasm32-wasip2`)".to_owned()
            } else if newer(version, ours) {
                format!("upgrade this host, or build the component against {package}@{ours}")
            } else {
                format!("build the component against {package}@{ours}")
            };
            return Some(format!("is of version {version}, and this host has {ours}: {advice}"));
        }
        if !interfaces.contains(&interface) {
            return Some(format!("is not an interface of this host's {package}@{ours}, which has {}", interfaces.join(", ")));
        }
        None
    }
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Refuses imports that nothing links.
pub(super) fn check_linked(component: &str, imports: &[Import]) -> Result<()> {
    let problems: Vec<_> = imports.iter().filter_map(|import| Some((import, import.missing()?))).collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::component(format!("{component} imports what this host doesn't have:{}", listed(&problems)))
        .code("missing_import")
        .hint("`landfall explain AGENT` lists what its component imports"))
}

/// Refuses imports that an agent isn't granted.
pub(super) fn check_granted(component: &str, imports: &[Import], grants: &Grants) -> Result<()> {
    let problems: Vec<_> = imports
        .iter()
        .filter(|import| import.capability().is_some_and(|capability| !grants.allows(capability)))
        .map(|import| (import, format!("is not granted to agent {}", grants.agent)))
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Denied, format!("{component} imports what its agent is not granted:{}", listed(&problems)))
        .code("not_granted"))
}

fn listed(problems: &[(&Import, String)]) -> String {
    problems.iter().map(|(import, why)| format!("\n  {import} {why}")).collect()
}

fn linked_of(prefix: &str) -> String {
    let names: Vec<_> = LINKED.iter().map(|(name, _, _)| *name).filter(|name| name.starts_with(prefix)).collect();
    names.join(", ")
}

/// Explains an import that has the right name and still doesn't fit: a function is missing or has another type.
pub(super) fn explain_mismatch(component: &str, imports: &[Import], error: wasmtime::Error) -> Error {
    let text = format!("{error:#}");
    // The linker names the import; the version that the component was built with says which side is older.
    let import = imports.iter().find(|import| text.contains(&import.name));
    let skew = import.and_then(|import| {
        let (package, _, version) = import.parts()?;
        let (_, ours, _) = LINKED.iter().find(|(name, _, _)| *name == package)?;
        Some(format!("it was built against {package}@{}, and this host has {ours}", version?))
    });
    let message = match skew {
        Some(skew) => format!("{component} doesn't fit this host: {skew}, where the interface differs"),
        None => format!("{component} doesn't fit this host"),
    };
    Error::component(message)
        .code("import_mismatch")
        .hint("build it again with the host's `wit/` folder")
        .source(error.into_boxed_dyn_error())
}

/// Whether a component built for one version can be linked with another: the rule of semantic versioning, as wasmtime applies it.
pub(super) fn compatible(wanted: &str, have: &str) -> bool {
    match (track(wanted), track(have)) {
        (Some(wanted), Some(have)) => wanted == have,
        _ => wanted == have,
    }
}

/// Returns the part of a version that must be equal; none for one with a pre-release, which fits only itself.
fn track(version: &str) -> Option<&str> {
    if version.contains(['-', '+']) {
        return None;
    }
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    let (major, minor) = (dots.next()?, dots.next()?);
    match version.get(..major)? {
        "0" if version.get(..minor)? == "0.0" => Some(version),
        "0" => version.get(..minor),
        _ => version.get(..major),
    }
}

fn newer(version: &str, than: &str) -> bool {
    let numbers = |text: &str| text.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect::<Vec<u64>>();
    numbers(version) > numbers(than)
}

struct HasIo;

impl HasData for HasIo {
    type Data<'a> = &'a mut ResourceTable;
}

/// Links all that guests may import, interface by interface: nothing gets in by the way, least of all the host's own files.
pub(super) fn linker(engine: &wasmtime::Engine) -> Result<Linker<TurnState>> {
    let mut linker = Linker::new(engine);
    link(&mut linker).map_err(|error| Error::internal("cannot link the host's interfaces").source(error.into_boxed_dyn_error()))?;
    Ok(linker)
}

fn link(l: &mut Linker<TurnState>) -> wasmtime::Result<()> {
    type T = TurnState;

    wasi::io::error::add_to_linker::<T, HasIo>(l, |t| t.ctx().table)?;
    wasi::io::poll::add_to_linker::<T, HasIo>(l, |t| t.ctx().table)?;
    wasi::io::streams::add_to_linker::<T, HasIo>(l, |t| t.ctx().table)?;
    wasi::clocks::wall_clock::add_to_linker::<T, WasiClocks>(l, T::clocks)?;
    wasi::clocks::monotonic_clock::add_to_linker::<T, WasiClocks>(l, T::clocks)?;
    wasi::random::random::add_to_linker::<T, WasiRandom>(l, |t| t.wasi.random())?;
    wasi::random::insecure::add_to_linker::<T, WasiRandom>(l, |t| t.wasi.random())?;
    wasi::random::insecure_seed::add_to_linker::<T, WasiRandom>(l, |t| t.wasi.random())?;
    wasi::cli::exit::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::environment::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::stdin::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::stdout::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::stderr::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::terminal_input::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::terminal_output::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::terminal_stdin::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::terminal_stdout::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::cli::terminal_stderr::add_to_linker::<T, WasiCli>(l, T::cli)?;
    wasi::sockets::network::add_to_linker::<T, WasiSockets>(l, &wasi::sockets::network::LinkOptions::default(), T::sockets)?;
    wasi::sockets::instance_network::add_to_linker::<T, WasiSockets>(l, T::sockets)?;
    wasi::sockets::ip_name_lookup::add_to_linker::<T, WasiSockets>(l, T::sockets)?;
    wasi::sockets::tcp::add_to_linker::<T, WasiSockets>(l, T::sockets)?;
    wasi::sockets::tcp_create_socket::add_to_linker::<T, WasiSockets>(l, T::sockets)?;
    wasi::sockets::udp::add_to_linker::<T, WasiSockets>(l, T::sockets)?;
    wasi::sockets::udp_create_socket::add_to_linker::<T, WasiSockets>(l, T::sockets)?;

    crate::workspace::wasi::add_to_linker(l)?;

    agent::types::add_to_linker::<T, HasProgress>(l, T::progress)?;
    agent::checkpoints::add_to_linker::<T, HasCheckpoints>(l, T::checkpoints)?;
    agent::fetch::add_to_linker::<T, HasFetch>(l, T::fetch)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(l)?;
    agent::progress::add_to_linker::<T, HasProgress>(l, T::progress)?;
    agent::repository::add_to_linker::<T, HasRepository>(l, T::repository)?;
    // Toolchains that import the whole world import this too, so it is linked for all; without a grant each call is denied.
    agent::schedules::add_to_linker::<T, HasSchedules>(l, T::schedules)?;
    config_store::add_to_linker::<T, HasConfig>(l, T::config)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(name: &str) -> Import {
        Import { name: name.to_owned() }
    }

    #[test]
    fn what_is_linked_has_nothing_missing() {
        for name in ["wasi:cli/stdin@0.2.3", "wasi:io/streams@0.2.99", "landfall:agent/progress@0.1.7", "wasi:config/store@0.2.0-rc.1"] {
            assert_eq!(import(name).missing(), None, "{name}");
        }
    }

    #[test]
    fn every_reason_names_the_way_out() {
        for (name, says) in [
            ("landfall:agent/progress@0.2.0", "upgrade this host, or build the component against landfall:agent@0.1.0"),
            ("landfall:agent/progress@0.0.9", "and this host has 0.1.0: build the component against landfall:agent@0.1.0"),
            ("landfall:agent/email@0.1.0", "has checkpoints, fetch, progress, repository, schedules"),
            ("wasi:cli/stdin@0.3.0", "wasm32-wasip2"),
            ("wasi:http/incoming-handler@0.2.3", "has outgoing-handler, types"),
            ("wasi:nn/graph@0.2.0", "of WASI this host has wasi:config, wasi:cli"),
            ("acme:db/query@1.0.0", "doesn't know the package"),
            ("host", "only such"),
            ("wasi:config/store@0.2.0-rc.2", "build the component against wasi:config@0.2.0-rc.1"),
        ] {
            let why = import(name).missing().unwrap();
            assert!(why.contains(says), "{name}: {why}");
        }
    }

    #[test]
    fn all_problems_come_in_one_message() {
        let error = check_linked("agent.wasm", &[import("acme:db/query"), import("wasi:cli/exit@0.2.4"), import("wasi:nn/graph@0.2.0")])
            .unwrap_err();
        assert!(error.message().contains("acme:db/query") && error.message().contains("wasi:nn/graph"), "{error}");
        assert!(!error.message().contains("wasi:cli/exit"), "{error}");
    }

    #[test]
    fn what_is_not_granted_is_denied_by_name() {
        let mut grants = Grants::own("reviewer".parse().unwrap());
        let wanted = ["landfall:agent/repository@0.1.0", "landfall:agent/fetch@0.1.0", "wasi:cli/exit@0.2.4"].map(import);
        assert!(check_granted("agent.wasm", &wanted, &grants).is_ok());
        grants.capabilities.remove(&Capability::Repository);
        let error = check_granted("agent.wasm", &wanted, &grants).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.message().contains("landfall:agent/repository@0.1.0 is not granted to agent reviewer"), "{error}");
    }
}
