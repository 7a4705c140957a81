//! Running other programs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Runs a command with its output on the terminal; an exit code other than 0 is an error that names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("can't start {}", show(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", show(command));
    }
    Ok(())
}

/// Runs a command and returns its stdout without the blanks around it. Its stderr goes to the terminal.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("can't start {}", show(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", show(command), output.status);
    }
    Ok(String::from_utf8(output.stdout).with_context(|| format!("{} printed no text", show(command)))?.trim().to_owned())
}

/// Runs a command quietly and returns whether it succeeded within the time; it is killed when that is over.
pub(crate) fn succeeds_within(limit: Duration, command: &mut Command) -> bool {
    let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return false;
    };
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(50)),
            _ => {
                // A child that has just ended by itself can't be killed; either way it is gone afterwards.
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// Returns whether a program of this name can be started.
pub(crate) fn exists(program: &str) -> bool {
    succeeds_within(Duration::from_secs(20), Command::new(program).arg("--version"))
}

fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
