//! Does to its own schedules what its input says, one call per line, and answers with what it got.

use landfall_guest::schedules::{self, Schedule};
use landfall_guest::{Agent, Error, Failure, Request, Response, Trigger};

struct Scheduler;

impl Agent for Scheduler {
    fn run(request: Request) -> Result<Response, Failure> {
        let mut lines: Vec<String> = request.input.lines().map(|line| call(line).unwrap_or_else(|error| format!("{error}"))).collect();
        if let Trigger::Schedule(tick) = &request.trigger {
            lines.push(format!("by {}, due {}", tick.schedule, tick.due.is_some()));
        }
        Ok(Response::from(lines.join("\n")))
    }
}

fn call(line: &str) -> Result<String, Error> {
    let mut words = line.splitn(3, ' ');
    let (verb, name, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next());
    Ok(match verb {
        "put" => show(&schedules::put(name, &rest.map_or_else(schedules::on_demand, |cron| schedules::by_clock(cron, "UTC")), None)?),
        "get" => show(&schedules::get(name)?),
        "list" => schedules::list()?.iter().map(|schedule| schedule.name.clone()).collect::<Vec<_>>().join(","),
        "remove" => schedules::remove(name).map(|()| "removed".to_owned())?,
        "trigger" => schedules::trigger(name, rest, Some("key"))?,
        "history" => format!("{} entries", schedules::history(name, 10)?.len()),
        _ => format!("no such call: {verb}"),
    })
}

fn show(schedule: &Schedule) -> String {
    format!("{} armed {} revision {}", schedule.name, schedule.armed, schedule.revision)
}

landfall_guest::export!(Scheduler);
