//! `landfall schedule`: agents by the clock and on demand.

mod add;
mod history;
mod list;
pub(super) mod next;
mod trigger;

use landfall::host::Host;
use landfall::id::{AgentName, ScheduleId};
use landfall::schedule::change::{Declared, Expected};
use landfall::schedule::plan::Source;

use crate::args::{Global, Schedule, ScheduleArg};
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

pub(crate) async fn run(global: &Global, environment: Environment, verb: Schedule) -> anyhow::Result<Done> {
    let verb = match verb {
        Schedule::Next(args) => return next::run(global, &args),
        verb => verb,
    };
    let declared = environment.config.schedules.clone();
    let host = setup::host(global, environment, true).await?;
    report(global, &host.schedules().declare(&declared).await?);
    let schedules = host.schedules();
    let done = match verb {
        Schedule::List { agent } => list::list(global, &host, agent.map(|agent| agent.parse::<AgentName>()).transpose()?.as_ref()).await,
        Schedule::Add(args) => add::run(global, &host, *args).await,
        Schedule::Show(arg) => list::show(global, &host, &id(&arg)?).await,
        Schedule::Trigger { schedule, input, key } => trigger::run(global, &host, &id(&schedule)?, input, key).await,
        Schedule::Pause(arg) => list::changed(global, "paused", &schedules.set_paused(&id(&arg)?, true).await?),
        Schedule::Resume(arg) => list::changed(global, "resumed", &schedules.set_paused(&id(&arg)?, false).await?),
        Schedule::History { schedule, limit } => history::run(global, &host, &id(&schedule)?, limit).await,
        Schedule::Remove(arg) => list::changed(global, "removed", &schedules.remove(&id(&arg)?, Source::Operator, Expected::Any).await?),
        Schedule::Next(args) => next::run(global, &args),
    };
    close(&host).await;
    done
}

/// Takes back what the command left in the store for itself. The work is done, so a failure is only a note.
async fn close(host: &Host) {
    if let Err(error) = host.schedules().close().await {
        output::note(&format!("warning: a scratch object was left in the store: {error}"));
    }
}

fn id(arg: &ScheduleArg) -> landfall::Result<ScheduleId> {
    arg.schedule.parse()
}

/// Says what the config's declarations did.
pub(crate) fn report(global: &Global, declared: &[Declared]) {
    for one in declared {
        match one {
            Declared::Failed(id, why) => output::note(&format!("warning: [schedules.{id}] can't be declared: {why}")),
            _ if global.quiet => {}
            Declared::Made(id) => output::note(&format!("schedule {id} is declared by the config from now on")),
            Declared::Changed(id) => output::note(&format!("schedule {id} was changed as the config says")),
            Declared::Disarmed(id) => output::note(&format!("schedule {id} isn't in the config any more: it is disarmed")),
        }
    }
}
