//! Shows a run's events on stderr while it goes on: a moving line on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use landfall::trigger::{LogStream, RunEvent, Step, Watch};

use crate::output;

/// A watcher for people.
pub(crate) struct Progress {
    bar: ProgressBar,
    quiet: bool,
}

impl Progress {
    /// Makes one; quiet ones show nothing.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet || !output::watched() {
            ProgressBar::hidden()
        } else {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        };
        Self { bar, quiet }
    }

    /// Takes the moving line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| output::note(text));
        }
    }
}

fn name(step: Step) -> &'static str {
    match step {
        Step::Waiting => "waiting for another run of the session",
        Step::Resolving => "asking the repository for the commit",
        Step::Fetching => "fetching the commit",
        Step::Importing => "importing its files",
        Step::Loading => "loading the component",
        Step::Running => "running",
        Step::Committing => "committing",
    }
}

impl Watch for Progress {
    fn event(&self, event: RunEvent) {
        match event {
            RunEvent::Step(step) => {
                self.bar.set_message(name(step));
                // Without a terminal only the slow steps are worth a line.
                if self.bar.is_hidden() && matches!(step, Step::Waiting | Step::Fetching | Step::Importing) {
                    self.say(&format!("{} ...", name(step)));
                }
            }
            RunEvent::Moved { step, done, of } => {
                let amount = |count| if step == Step::Fetching { output::size(count) } else { count.to_string() };
                let of = of.map(|of| format!(" of {}", amount(of))).unwrap_or_default();
                self.bar.set_message(format!("{} ({}{of})", name(step), amount(done)));
            }
            RunEvent::Log { stream, line } => {
                let mark = if stream == LogStream::Stderr { "!" } else { "|" };
                self.say(&format!("{mark} {}", output::safe(&line)));
            }
            RunEvent::Progress { kind, payload } => self.say(&format!("* {}: {}", output::safe(&kind), output::safe(&payload))),
            RunEvent::Warning(text) => self.say(&format!("warning: {}", output::safe(&text))),
            _ => {}
        }
    }
}
