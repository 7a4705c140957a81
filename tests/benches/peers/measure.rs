//! One process, measured.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::proxy::Counts;

/// What an operation took.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Wall seconds of the whole process.
    pub(crate) wall: f64,
    /// Wall seconds of the call alone, where the tool is a library that can say.
    pub(crate) call: Option<f64>,
    /// User and system seconds.
    pub(crate) cpu: f64,
    /// Largest resident set in KiB.
    pub(crate) rss: u64,
    /// Requests to the server.
    pub(crate) requests: u64,
    /// Bytes sent to it.
    pub(crate) sent: u64,
    /// Bytes got from it.
    pub(crate) received: u64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8.3} s wall, {:7.3} s cpu, {:6} KiB", self.wall, self.cpu, self.rss)?;
        if let Some(call) = self.call {
            write!(f, ", call {call:.4} s")?;
        }
        write!(f, ", {} requests, {} B sent, {} B received", self.requests, self.sent, self.received)
    }
}

/// Starts the command and waits for exactly that process: `wait4` gives its own CPU time and memory.
const WAIT: &str = "
import json, os, sys, time
begin = time.monotonic()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
wall = time.monotonic() - begin
json.dump({'wall': wall, 'cpu': used.ru_utime + used.ru_stime, 'rss': used.ru_maxrss, 'code': os.waitstatus_to_exitcode(status)}, open(sys.argv[1], 'w'))
";

#[derive(Deserialize)]
struct Waited {
    wall: f64,
    cpu: f64,
    rss: u64,
    code: i32,
}

/// Runs a command to its end. What it prints on stdout is returned.
pub(crate) fn run(
    program: &str,
    arguments: &[&str],
    folder: &Path,
    variables: &[(String, String)],
    counts: Option<&Counts>,
) -> (Measured, String) {
    let result = folder.join(".measured");
    let before = counts.map(Counts::now).unwrap_or_default();
    let mut command = Command::new("python3");
    command.args(["-c", WAIT]).arg(&result).arg(program).args(arguments).current_dir(folder);
    command.envs(variables.iter().cloned()).stdin(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().unwrap();
    let waited: Waited = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    assert_eq!(waited.code, 0, "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let after = counts.map(Counts::now).unwrap_or_default();
    let measured = Measured {
        wall: waited.wall,
        call: None,
        cpu: waited.cpu,
        rss: waited.rss,
        requests: after.0 - before.0,
        sent: after.1 - before.1,
        received: after.2 - before.2,
    };
    (measured, String::from_utf8_lossy(&output.stdout).into_owned())
}
