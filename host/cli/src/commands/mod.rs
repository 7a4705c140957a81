//! One file per verb.

mod checkpoint;
mod doctor;
mod explain;
mod gc;
mod init;
mod patch;
mod policy;
mod run;
mod schedule;
mod serve;
mod session;
mod token;

use crate::args::{Cli, Command, Policy, Schedule};
use crate::environment::{Environment, Needs};
use crate::exit::Done;

/// Answers the verbs that need neither config nor store; none for the others.
pub(crate) fn answer(cli: &Cli) -> Option<anyhow::Result<Done>> {
    match &cli.command {
        Command::Schedule(Schedule::Next(args)) => Some(schedule::next::run(&cli.global, args)),
        _ => None,
    }
}

/// Says what a verb needs of its environment. Questions that need no config are answered beside a broken one too.
pub(crate) fn needs(command: &Command) -> Needs {
    match command {
        Command::Policy(Policy::Check(args)) if args.agent_and_target().0.is_none() => Needs::Nothing,
        Command::Policy(_) | Command::Explain(_) => Needs::Config,
        _ => Needs::All,
    }
}

/// Runs the verb that was typed.
pub(crate) async fn run(cli: Cli, environment: Environment) -> anyhow::Result<Done> {
    let global = &cli.global;
    match cli.command {
        Command::Init(args) => init::run(global, &args),
        Command::Run(args) => run::run(global, environment, args).await,
        Command::Session(verb) => session::run(global, environment, verb).await,
        Command::Checkpoint(verb) => checkpoint::run(global, environment, verb).await,
        Command::Schedule(verb) => schedule::run(global, environment, verb).await,
        Command::Explain(args) => explain::run(global, environment, &args).await,
        Command::Policy(verb) => policy::run(global, &environment, verb).await,
        Command::Gc(args) => gc::run(global, environment, args).await,
        Command::Serve(args) => serve::run(global, environment, args).await,
        Command::Token(verb) => token::run(global, verb),
        Command::Doctor(args) => doctor::run(global, environment, args).await,
    }
}
