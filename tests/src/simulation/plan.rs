//! What happens in a run, drawn from its seed. Seeds differ in kind, not only in detail: each has some faults and lacks others, so that rare
//! combinations aren't drowned by the frequent ones.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use super::dice::Dice;
use super::guest::Script;
use super::store::{Ambush, Weather};
use super::timeline::Drift;
use super::{Action, Request, Way};

/// Nanoseconds of an hour.
const HOUR: i64 = 3_600_000_000_000;
/// How long what was left over may take to come to rest: late writes, frozen processes and leases have ended by then.
const AFTERMATH: Duration = Duration::from_secs(420);

/// The course of a run.
pub struct Plan {
    /// The machines' clocks.
    pub machines: Vec<Arc<Drift>>,
    /// How many sessions there are.
    pub sessions: usize,
    /// How often the queue is listed by the workers that all machines have, where they have them.
    pub workers: Option<Duration>,
    /// How often the schedules are listed by the pollers that all machines have, where there are schedules.
    pub pollers: Option<Duration>,
    /// What goes wrong with the store.
    pub weather: Weather,
    /// What is done, and when.
    pub actions: Vec<(Duration, Action)>,
}

impl Plan {
    /// Draws one.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let dice = Dice::new(seed, 2);
        let machines: Vec<Arc<Drift>> = (0..dice.between(3, 5)).map(|_| Arc::new(drift(&dice))).collect();
        let length = dice.pick(&[20, 60, 150]);
        // In some runs everything is about one session that is taken over again and again.
        let contested = dice.chance(3_000);
        let sessions = if contested { 1 } else { dice.pick(&[1, 1, 2, 3]) };
        let workers = dice.chance(7_000).then(|| dice.pick(&[Duration::from_secs(2), Duration::from_secs(10)]));
        let mut weather = Weather::draw(&dice);
        if contested {
            weather = Weather { dies_writing: 600, freezes_writing: dice.pick(&[300, 1_000]), ..weather };
        }
        // In others whoever is at a chosen point of a turn sleeps longer than its lease.
        let ambush = dice.chance(3_000);
        if ambush {
            weather = Weather { ambush: Some(Ambush::draw(&dice)), ..weather };
        }
        let length = if ambush { 150 } else { length };
        let pollers =
            (workers.is_some() && !ambush && dice.chance(3_000)).then(|| dice.pick(&[Duration::from_secs(10), Duration::from_secs(30)]));
        let length = if pollers.is_some() { dice.pick(&[600, 1_500]) } else { length };
        let mut plan = Self { machines, sessions, workers, pollers, weather, actions: Vec::new() };
        let time = |dice: &Dice| Duration::from_millis(dice.below(length * 1_000));
        for machine in 0..plan.machines.len() {
            plan.actions.push((Duration::ZERO, Action::Boot(machine)));
        }
        let thinks = dice.pick(&[50, 2_000, 2_000, 30_000]);
        let requests = dice.between(3, 12);
        for number in 0..requests {
            let request = plan.request(&dice, number, thinks);
            plan.actions.push((time(&dice), Action::Ask(request)));
        }
        let anyone = |dice: &Dice, plan: &Self| usize::try_from(dice.below(plan.machines.len() as u64)).unwrap_or(0);
        let some = |dice: &Dice, most: u64| if dice.chance(5_000) { dice.between(1, most) } else { 0 };
        for _ in 0..some(&dice, 6) {
            let (at, machine) = (time(&dice), anyone(&dice, &plan));
            plan.actions.push((at, Action::Kill(machine)));
        }
        for _ in 0..some(&dice, 3) {
            let (at, machine) = (time(&dice), anyone(&dice, &plan));
            plan.actions.push((at, Action::Freeze(machine)));
        }
        for _ in 0..some(&dice, 2) {
            let (at, machine) = (time(&dice), anyone(&dice, &plan));
            plan.actions.push((at, Action::CutOff(machine)));
            plan.actions.push((at + dice.span(Duration::from_secs(1), Duration::from_secs(100)), Action::Reconnect(machine)));
        }
        for _ in 0..some(&dice, 2) {
            let (at, machine) = (time(&dice), anyone(&dice, &plan));
            let offset = HOUR / 1000 * i64::try_from(dice.below(4_000)).unwrap_or(0) - 2 * HOUR;
            plan.actions.push((at, Action::SetClock(machine, offset)));
        }
        for _ in 0..some(&dice, 3) {
            let (at, machine, session) = (time(&dice), anyone(&dice, &plan), plan.session(&dice));
            plan.actions.push((at, Action::Cancel(machine, session)));
        }
        for _ in 0..some(&dice, 2) {
            let (at, machine, session) = (time(&dice), anyone(&dice, &plan), plan.session(&dice));
            plan.actions.push((at, Action::Delete(machine, session)));
        }
        if plan.workers.is_some() {
            for _ in 0..some(&dice, 4) {
                let (at, machine, request) = (time(&dice), anyone(&dice, &plan), dice.below(requests));
                plan.actions.push((at, Action::CancelRun(machine, request)));
            }
            for _ in 0..some(&dice, 2) {
                let (at, machine) = (time(&dice), anyone(&dice, &plan));
                plan.actions.push((at, Action::Stop(machine)));
            }
        }
        // Forks are sessions like the others from then on.
        let mut numbers = requests;
        for _ in 0..some(&dice, 2) {
            let (at, machine, of) = (time(&dice), anyone(&dice, &plan), plan.session(&dice));
            let save = dice.chance(3_000).then(|| dice.below(3));
            let child = if dice.chance(8_000) { plan.sessions } else { plan.session(&dice) };
            plan.sessions = plan.sessions.max(child + 1);
            plan.actions.push((at, Action::Fork(machine, of, child, save)));
            for _ in 0..dice.below(3) {
                let request = Request { session: child, ..plan.request(&dice, numbers, thinks) };
                numbers += 1;
                plan.actions.push((at + time(&dice) / 4, Action::Ask(request)));
            }
        }
        for _ in 0..some(&dice, 2) {
            let (at, machine, session) = (time(&dice), anyone(&dice, &plan), plan.session(&dice));
            plan.actions.push((at, Action::Rollback(machine, session, dice.between(1, 3))));
        }
        if plan.pollers.is_some() {
            super::ticks::draw(&dice, &mut plan, length);
        }
        let clear = Duration::from_secs(length);
        // The grace is for readers of old checkpoints; what is needed has to be safe without one.
        let collections = some(&dice, 6);
        let (keeps, grace) = (dice.between(1, 3), Duration::from_secs(dice.pick(&[0, 0, 30, 120])));
        for _ in 0..collections {
            let (at, machine) = (time(&dice), anyone(&dice, &plan));
            plan.actions.push((at, Action::Collect(machine, keeps, grace)));
        }
        if collections > 0 {
            for later in [AFTERMATH / 2, AFTERMATH / 4 * 3] {
                plan.actions.push((clear + later, Action::Collect(anyone(&dice, &plan), keeps, grace)));
            }
        }
        plan.actions.push((clear, Action::Clear));
        plan.actions.push((clear + AFTERMATH, Action::Drain));
        plan
    }

    fn session(&self, dice: &Dice) -> usize {
        usize::try_from(dice.below(self.sessions as u64)).unwrap_or(0)
    }

    fn request(&self, dice: &Dice, number: u64, thinks: u64) -> Request {
        let keyed = dice.chance(5_000);
        let script = Script {
            before: dice.below(thinks),
            after: dice.below(thinks),
            save: dice.chance(3_000).then(|| format!("save-{}", dice.below(3))),
            fails: dice.chance(1_000),
            bytes: dice.pick(&[0, 10, 500, 5_000]) + dice.below(7),
        };
        Request {
            number,
            machine: usize::try_from(dice.below(self.machines.len() as u64)).unwrap_or(0),
            session: self.session(dice),
            key: keyed.then(|| format!("key-{number}")),
            waits: dice.chance(7_000),
            way: match self.workers {
                Some(_) if dice.chance(8_000) => Way::Anywhere(dice.span(Duration::from_millis(100), Duration::from_secs(120))),
                _ => Way::Here,
            },
            script,
            retries: if keyed { 2 } else { 0 },
        }
    }
}

/// A machine's clocks: some are right, some are hours off, some run several percent fast or slow.
fn drift(dice: &Dice) -> Drift {
    let offset = if dice.chance(5_000) { i64::try_from(dice.below(4_000)).unwrap_or(0) * (HOUR / 1000) - 2 * HOUR } else { 0 };
    let rate = if dice.chance(5_000) { dice.between(900_000, 1_100_000) } else { 1_000_000 };
    Drift { offset: AtomicI64::new(offset), rate }
}
