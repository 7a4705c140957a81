//! What can be typed. Nothing here does anything.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Runs agents as WebAssembly components, in turns, on a pinned repository, with a workspace that outlives the machine.
#[derive(Parser, Debug)]
#[command(name = "landfall", version, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every verb.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// The config file [default: landfall.toml here or in a folder above]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The store, instead of the config's: a folder's path, file://, s3://, gs://, az:// or memory:
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// A file with a [policy] section that limits what the config may ask for
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Where caches are kept [default: .landfall/cache beside the config]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Print one JSON document on stdout instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show nothing but results and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write a landfall.toml to start from
    Init(Init),
    /// Run one turn of an agent, or a component file in a session of its own
    Run(Run),
    /// Look at sessions
    #[command(subcommand)]
    Session(Session),
    /// Look at what turns left behind
    #[command(subcommand)]
    Checkpoint(Checkpoint),
    /// Run agents by the clock or on demand
    #[command(subcommand)]
    Schedule(Schedule),
    /// Explain an agent: its imports, and what is asked for, allowed and comes of both
    Explain(Explain),
    /// Ask what an agent may reach
    #[command(subcommand)]
    Policy(Policy),
    /// Free what no checkpoint needs any more
    Gc(Gc),
    /// Serve HTTP, and drive accepted runs: one of any number of replicas on the store
    Serve(Serve),
    /// Make tokens for the server
    #[command(subcommand)]
    Token(Token),
    /// Check the store: reachable, conditional writes and checksums enforced
    Doctor(Doctor),
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The agent
    pub(crate) agent: String,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Policy {
    /// Say whether a request would leave, and why: exit code 0 when it would, 3 when it is denied
    Check(PolicyCheck),
}

#[derive(Args, Debug)]
pub(crate) struct PolicyCheck {
    /// An URL, or an address alone; before it, the agent whose lists count. Without an agent only the rules for URLs and addresses
    /// do, and --allow
    #[arg(value_name = "[AGENT] URL|ADDRESS", required = true, num_args = 1..=2)]
    pub(crate) asked: Vec<String>,
    /// The method
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A host pattern, as in allowed_outbound_hosts, to try without an agent; can be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) allow: Vec<String>,
    /// Take this for the name server's answer; HOST * is every name; EMPTY, NXDOMAIN and SELF (an address of this machine) are
    /// answers too
    #[arg(long, value_name = "HOST=IP,IP")]
    pub(crate) resolve: Vec<String>,
}

impl PolicyCheck {
    /// Returns the agent, when one is named, and what is asked about.
    pub(crate) fn agent_and_target(&self) -> (Option<&str>, &str) {
        match self.asked.as_slice() {
            [agent, target] => (Some(agent), target),
            [target] => (None, target),
            _ => (None, ""),
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Gc {
    /// Change nothing, and say what would be done and why
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep the checkpoints of so many last turns [default: that of [retention], or 50]
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<u64>,
    /// Keep the checkpoints of so many last days [default: that of [retention], or 30]
    #[arg(long, value_name = "N")]
    pub(crate) keep_days: Option<u64>,
    /// Leave sessions in the many small packs that their turns made
    #[arg(long)]
    pub(crate) no_compact: bool,
    /// Also read so many percent of the packs, drawn at random, and compare them with their names
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) scrub: Option<u8>,
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The folder to write it in
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Kill replicas in the middle of turns, let others go on, and check what is in the store: below a scratch prefix of it, which is deleted
    #[arg(long)]
    pub(crate) restart_matrix: bool,
    /// The agent whose turns are cut off; they are repeated, so choose one that may be [default: the config's only one]
    #[arg(long, requires = "restart_matrix")]
    pub(crate) agent: Option<String>,
    /// What it gets as its input
    #[arg(long, value_name = "TEXT", default_value = "", requires = "restart_matrix")]
    pub(crate) input: String,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where to listen, instead of the config's [server] listen [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// This replica's name, instead of the config's [default: the machine's]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How long it may be silent before others take its runs over, instead of the config's [default: 60s]
    #[arg(long, value_name = "SPAN", value_parser = landfall::config::parse_span)]
    pub(crate) lease: Option<std::time::Duration>,
    /// Time between two listings of the queue, instead of the config's [default: 2s]
    #[arg(long, value_name = "SPAN", value_parser = landfall::config::parse_span)]
    pub(crate) poll: Option<std::time::Duration>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Token {
    /// Make one: it is printed once, with the config section that knows its digest
    New {
        /// What it is called in the config
        #[arg(default_value = "default")]
        name: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// An agent of the config, or the path of a component (FILE.wasm)
    #[arg(value_name = "AGENT|FILE.wasm")]
    pub(crate) agent: String,
    /// The session [default: "default" for an agent, a new one for a file]
    #[arg(long, short)]
    pub(crate) session: Option<String>,
    /// The input text; - reads it from standard input
    #[arg(long, short, value_name = "TEXT|-", default_value = "")]
    pub(crate) input: String,
    /// A file to hand over with the input; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Pin this commit instead of the branch's tip (first turn only)
    #[arg(long, value_name = "SHA", conflicts_with = "branch")]
    pub(crate) commit: Option<String>,
    /// Pin the tip of this branch instead of the configured one (first turn only)
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// A name and value for this run alone; can be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    /// Makes a repeated command one run: the same key gives the recorded result again
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Fail at once when another run of the session goes on, instead of waiting
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Arguments of a command component, instead of the configured ones
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

/// A session: `AGENT` means its session "default".
#[derive(Args, Debug)]
pub(crate) struct SessionArg {
    /// The session: AGENT/SESSION, or AGENT for its session "default"
    #[arg(value_name = "AGENT[/SESSION]")]
    pub(crate) agent: String,
    /// The session, when it isn't part of the first argument
    #[arg(long, short)]
    pub(crate) session: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Session {
    /// List sessions with their last turn
    List {
        /// Only this agent's
        agent: Option<String>,
    },
    /// Show a session's state: pin, head, lease, named checkpoints
    Show(SessionArg),
    /// List a session's runs, newest first
    Log {
        #[command(flatten)]
        session: SessionArg,
        /// So many at most
        #[arg(long, short = 'n', default_value_t = 50)]
        limit: usize,
    },
    /// Show what a session changed since its pin, as a diff that `git apply` accepts
    Diff {
        #[command(flatten)]
        session: SessionArg,
        /// Only names and kinds of the changed paths
        #[arg(long)]
        names: bool,
        /// Only these files and folders
        #[arg(long = "path", value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Make a session that begins with a checkpoint of another
    Fork {
        #[command(flatten)]
        from: CheckpointArg,
        /// The new session: a name, or AGENT/SESSION for another agent
        #[arg(value_name = "SESSION")]
        to: String,
    },
    /// Go back to an older checkpoint of the session; the turns since stay in its log
    Rollback {
        /// The session: AGENT/SESSION, or AGENT for its session "default"
        #[arg(value_name = "AGENT[/SESSION]")]
        session: String,
        /// A turn's number, the name of a checkpoint, or a run's id
        #[arg(value_name = "TURN|NAME|RUN")]
        to: String,
    },
    /// Delete a session; what its forks stand on stays
    Delete(SessionArg),
    /// Hand back what a session changed: its commits as mails for `git am`, or one patch for `git apply` when it made none
    Patch {
        #[command(flatten)]
        session: SessionArg,
        /// Write files into this folder instead of standard output
        #[arg(long, short = 'o', value_name = "FOLDER")]
        output: Option<PathBuf>,
        /// Only what isn't committed, as one patch on top of the last commit
        #[arg(long)]
        uncommitted: bool,
        /// New files that .gitignore names too, where the patch isn't made of commits
        #[arg(long)]
        ignored: bool,
    },
}

/// A checkpoint.
#[derive(Args, Debug)]
pub(crate) struct CheckpointArg {
    /// A run's id, AGENT/SESSION for its head, AGENT/SESSION@TURN, or AGENT/SESSION@NAME for a named one
    #[arg(value_name = "RUN|AGENT/SESSION[@TURN|@NAME]")]
    pub(crate) checkpoint: String,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Checkpoint {
    /// List a session's checkpoints, newest first
    List(SessionArg),
    /// Show one: id, pin, sizes
    Show(CheckpointArg),
    /// List a folder of one
    Ls {
        #[command(flatten)]
        at: CheckpointArg,
        /// The folder, as the agent sees it
        #[arg(default_value = "/workspace")]
        path: String,
        /// With everything below it
        #[arg(long, short)]
        recursive: bool,
    },
    /// Write a file of one to stdout
    Cat {
        #[command(flatten)]
        at: CheckpointArg,
        /// The file, as the agent sees it: /workspace/src/main.rs
        path: String,
    },
    /// Compare two
    Diff {
        #[command(flatten)]
        before: CheckpointArg,
        /// The second one; without it the first one is compared with the pin
        after: Option<String>,
        /// Only names and kinds of the changed paths
        #[arg(long)]
        names: bool,
    },
    /// Write one as a folder; with a repository, as a git working tree at the pin
    Open {
        #[command(flatten)]
        at: CheckpointArg,
        /// The folder to make; it must not exist or be empty
        to: PathBuf,
        /// Also write symbolic links that lead out of the folder
        #[arg(long)]
        unsafe_links: bool,
    },
    /// Write the files of one as a tar archive: the same bytes each time
    Export {
        #[command(flatten)]
        at: CheckpointArg,
        /// The archive's file; - is standard output
        #[arg(long, short, value_name = "FILE|-", default_value = "-")]
        output: PathBuf,
        /// The folder, as the agent sees it
        #[arg(long, default_value = "/workspace")]
        path: String,
    },
    /// Make a session that begins with the files of a folder or a tar archive
    Import {
        /// A folder, a tar archive (plain, gzip or zstd), or - for an archive on standard input
        #[arg(value_name = "DIR|TAR|-")]
        from: PathBuf,
        #[command(flatten)]
        session: SessionArg,
        /// Also take symbolic links that lead out of the files
        #[arg(long)]
        unsafe_links: bool,
    },
    /// Check one against its ids
    Verify {
        #[command(flatten)]
        at: CheckpointArg,
        /// Only pages and the presence of packs, not the content
        #[arg(long)]
        shallow: bool,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum Schedule {
    /// List schedules with their next run
    List {
        /// Only this agent's
        agent: Option<String>,
    },
    /// Make a schedule, or change one
    Add(Box<Add>),
    /// Show one: plan, next runs, what runs now, what is wrong
    Show(ScheduleArg),
    /// Run it now, whatever its plan says; a server does the work
    Trigger {
        #[command(flatten)]
        schedule: ScheduleArg,
        /// The input text instead of the plan's; - reads it from standard input
        #[arg(long, short, value_name = "TEXT|-")]
        input: Option<String>,
        /// Makes a repeated trigger one run, for two days
        #[arg(long)]
        key: Option<String>,
    },
    /// Let nothing fire for now; triggers work
    Pause(ScheduleArg),
    /// Let it fire again; what was due meanwhile is over
    Resume(ScheduleArg),
    /// Show what became of its ticks, newest first, and why
    History {
        #[command(flatten)]
        schedule: ScheduleArg,
        /// So many at most
        #[arg(long, short = 'n', default_value_t = 50)]
        limit: usize,
    },
    /// Remove it; a run that goes on may finish
    Remove(ScheduleArg),
    /// Say when an expression fires; needs neither config nor store
    Next(Next),
}

/// A schedule.
#[derive(Args, Debug)]
pub(crate) struct ScheduleArg {
    /// Its name; AGENT/NAME for one that an agent made
    #[arg(value_name = "NAME")]
    pub(crate) schedule: String,
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    #[command(flatten)]
    pub(crate) schedule: ScheduleArg,
    /// The agent that runs
    #[arg(long, required_unless_present = "from")]
    pub(crate) agent: Option<String>,
    /// When: five fields, or @daily and the like; without it the schedule is on demand
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub(crate) cron: Option<String>,
    /// The time zone, by its IANA name [default: UTC]
    #[arg(long, value_name = "ZONE", allow_hyphen_values = true)]
    pub(crate) tz: Option<String>,
    /// The input text of each run; - reads it from standard input
    #[arg(long, short, value_name = "TEXT|-")]
    pub(crate) input: Option<String>,
    /// The session that it works in: continue (one, named as the schedule), fresh (a new one each time), or a name [default: continue]
    #[arg(long, short, value_name = "continue|fresh|NAME")]
    pub(crate) session: Option<String>,
    /// What a tick does while a run goes on [default: skip]
    #[arg(long, value_parser = ["skip", "queue"])]
    pub(crate) overlap: Option<String>,
    /// Which ticks run that nobody was there for [default: latest]
    #[arg(long, value_parser = ["latest", "none", "all"])]
    pub(crate) catch_up: Option<String>,
    /// How late a tick may be caught up [default: 24h]
    #[arg(long, value_name = "SPAN")]
    pub(crate) catch_up_window: Option<String>,
    /// Start up to so much later than the tick, always the same for one schedule
    #[arg(long, value_name = "SPAN")]
    pub(crate) jitter: Option<String>,
    /// How often a run that found something unavailable is tried again
    #[arg(long, value_name = "TIMES")]
    pub(crate) retries: Option<u32>,
    /// The pause before the first retry; it doubles with each [default: 1m]
    #[arg(long, value_name = "SPAN")]
    pub(crate) retry_pause: Option<String>,
    /// Change the schedule when there is one
    #[arg(long)]
    pub(crate) replace: bool,
    /// Take the document that `schedule show --json` prints, from this file or - for standard input; its revision must be the current one
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["agent", "cron", "tz", "input", "session", "overlap", "catch_up", "catch_up_window", "jitter", "retries", "retry_pause"])]
    pub(crate) from: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Next {
    /// Five fields: minute hour day-of-month month day-of-week; or @daily and the like; blank: on demand only
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    pub(crate) expression: String,
    /// The time zone, by its IANA name
    #[arg(long, value_name = "ZONE", default_value = "UTC", allow_hyphen_values = true)]
    pub(crate) tz: String,
    /// Only what comes after this instant (RFC 3339) [default: now]
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    pub(crate) after: Option<String>,
    /// So many instants, 1 to 1000
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: u16,
}
