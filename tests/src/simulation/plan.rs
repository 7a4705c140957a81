//! What happens in a run, drawn from its seed. Seeds differ in kind, not only in detail: each has some faults and lacks others, so that rare
//! combinations aren't drowned by the frequent ones.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use super::dice::Dice;
use super::guest::Script;
use super::store::Weather;
use super::timeline::Drift;
use super::{Action, Request};

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
        let mut weather = Weather::draw(&dice);
        if contested {
            weather = Weather { dies_writing: 600, freezes_writing: dice.pick(&[300, 1_000]), ..weather };
        }
        let mut plan = Self { machines, sessions, weather, actions: Vec::new() };
        let time = |dice: &Dice| Duration::from_millis(dice.below(length * 1_000));
        for machine in 0..plan.machines.len() {
            plan.actions.push((Duration::ZERO, Action::Boot(machine)));
        }
        let thinks = dice.pick(&[50, 2_000, 2_000, 30_000]);
        for number in 0..dice.between(3, 12) {
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
        let clear = Duration::from_secs(length);
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
