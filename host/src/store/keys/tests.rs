use proptest::prelude::*;

use super::*;

fn session(agent: &str, session: &str) -> SessionRef {
    SessionRef { agent: agent.parse().unwrap(), session: session.parse().unwrap() }
}

#[test]
fn keys_are_as_the_format_says() {
    let s = session("reviewer", "fix 42/größer");
    let id = PackId::of(b"x");
    let run = RunId::new_v7(1, [7; 10]);
    let base = "sessions/reviewer/fix%2042%2Fgr%C3%B6%C3%9Fer";
    assert_eq!(Key::Head(s.clone()).to_string(), format!("{base}/head"));
    assert_eq!(Key::SessionPack(s.clone(), id).to_string(), format!("{base}/packs/{id}"));
    assert_eq!(Key::Run(s.clone(), run).to_string(), format!("{base}/runs/{run}"));
    assert_eq!(Key::Queue(SessionHash::of(&s), run).to_string(), format!("queue/{}/{run}", SessionHash::of(&s)));
    assert_eq!(Key::Replica("a-b".parse().unwrap(), Nonce::from_bytes([1; 16])).to_string(), format!("replicas/a-b-{}", "01".repeat(16)));
    assert_eq!(Key::Marker.to_string(), "landfall-store");
    let (nightly, own): (ScheduleId, ScheduleId) = ("nightly".parse().unwrap(), "reviewer/nightly".parse().unwrap());
    assert_eq!(Key::Plan(nightly.clone()).to_string(), "schedules/plan/nightly");
    assert_eq!(Key::ScheduleState(own.clone()).to_string(), "schedules/state/reviewer%2Fnightly");
    let tick = TickName::Due("2026-03-08T07:00:00Z".parse().unwrap());
    assert_eq!(Key::Claim(nightly.clone(), tick).to_string(), "schedules/claims/nightly/20260308T070000Z");
    assert_eq!(Key::Claim(nightly, TickName::Triggered(run)).to_string(), format!("schedules/claims/nightly/t-{run}"));
    for text in ["schedules/plan/nightly", "schedules/state/reviewer%2Fnightly", "schedules/claims/nightly/20260308T070000Z"] {
        assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
    }
}

#[test]
fn names_that_look_like_paths_stay_one_segment() {
    for name in ["..", ".", "../../etc", "a/b", "%2e%2e", "~tilde", ".hidden", "head", "packs"] {
        let text = segment(name);
        assert!(!text.contains('/') && !text.starts_with('.'), "{text}");
        assert_eq!(name_of(&text).unwrap(), name);
    }
}

#[test]
fn other_spellings_are_refused() {
    for bad in ["%61", "a%2f", "%", "%2", "a b", "~YQ", "~", "é", "%FF", ".a"] {
        assert!(name_of(bad).is_err(), "{bad}");
    }
    let head = Key::Head(session("a", "b")).to_string();
    for bad in [
        "",
        "/",
        "sessions/a/b",
        "sessions/a/b/head/",
        "sessions//b/head",
        "sessions/%61/b/head",
        "replicas/x",
        "probe/ABC",
        "schedules/plan/a/b",
        "schedules/claims/a/20260308T070000",
        "schedules/claims/a/20261308T070000Z",
    ] {
        assert!(bad.parse::<Key>().is_err(), "{bad}");
    }
    assert!(head.parse::<Key>().is_ok());
}

#[test]
fn sessions_with_moved_borders_have_different_hashes() {
    assert_ne!(SessionHash::of(&session("a", "bc")), SessionHash::of(&session("ab", "c")));
}

proptest! {
    #[test]
    fn every_key_round_trips_and_fits_a_file_name(agent in "[^\\p{C}\\p{Z}]{1,16}", name in "\\PC{1,128}") {
        let (Ok(agent), Ok(name)) = (agent.parse(), name.parse()) else { return Ok(()) };
        let s = SessionRef { agent, session: name };
        let key = Key::Head(s);
        let text = key.to_string();
        prop_assert!(text.split('/').all(|part| !part.is_empty() && part.len() <= 255));
        prop_assert_eq!(object_path("a/b", &text).unwrap().to_string(), format!("a/b/{text}"));
        prop_assert_eq!(text.parse::<Key>().unwrap(), key);
    }
}
