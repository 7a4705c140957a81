use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::rules::checked_parts;
use super::*;
use crate::error::ErrorKind;
use crate::id::{ChunkId, Digest, PackId, PageId, SessionRef};
use crate::workspace::page::*;

/// A writer's view with everything in fixed places: fresh chunks in a frame of the same pack, fresh pages in another.
struct Here(Home);

impl HintContext for Here {
    fn home(&self) -> &Home {
        &self.0
    }

    fn chunk(&self, id: ChunkId) -> Option<Spot> {
        Some(Spot::Here { frame: 8, stored: 5000, start: 100 * u32::from(id.as_bytes()[0]), len: 100 })
    }

    fn page(&self, id: PageId) -> Option<Spot> {
        Some(Spot::Here { frame: 5008, stored: 300, start: 0, len: 200 + u32::from(id.as_bytes()[0]) })
    }
}

fn session(name: &str) -> Home {
    Home::Session(SessionRef { agent: "reviewer".parse().unwrap(), session: name.parse().unwrap() })
}

fn from(name: &str) -> Location {
    Location { home: Arc::new(session(name)), pack: PackId::from_bytes([0xee; 32]), frame: 5308, stored: 700, start: 0, len: 900 }
}

fn chunk(n: u8, len: u32) -> Part {
    Part::Chunk(Link { id: ChunkId::from_bytes([n; 32]), place: Place::Fresh }, len)
}

fn page(n: u8) -> PageLink {
    Link { id: PageId::from_bytes([n; 32]), place: Place::Fresh }
}

fn at(home: Home, pack: u8) -> PageLink {
    let at = Location { home: Arc::new(home), pack: PackId::from_bytes([pack; 32]), frame: 70_000, stored: 400, start: 0, len: 350 };
    Link { id: PageId::from_bytes([pack; 32]), place: Place::At(at) }
}

fn entry(name: &'static str, node: Node) -> Entry {
    Entry { name: name.into(), mode: 0o644, mtime: 1_767_225_600_000_000_000, node }
}

fn file(name: &'static str, size: u64, content: Content) -> Entry {
    entry(name, Node::File { size, content })
}

/// A page of each kind, with every form of everything.
fn samples() -> Vec<(&'static str, Page)> {
    let slot = |page: PageLink, entries| Some(SplitSlot { page, bytes: entries * 70, entries });
    let mut slots = vec![None; FANOUT];
    slots[0] = slot(page(1), 150);
    slots[15] = slot(at(session("other"), 2), 200);
    vec![
        ("empty directory", Page::Directory(Vec::new())),
        (
            "directory",
            Page::Directory(vec![
                file("a-chunk", 65, Content::Parts(vec![chunk(1, 65)])),
                file("b-parts", 100_090, Content::Parts(vec![chunk(2, 90), Part::Hole(100_000)])),
                file("c-list", 50 << 20, Content::List(page(3))),
                file("d-hole", 1 << 30, Content::Parts(vec![Part::Hole(1 << 30)])),
                file("e-empty", 0, Content::Inline(Bytes::new())),
                file("f-inline", 5, Content::Inline(Bytes::from_static(b"hello"))),
                Entry { mtime: -1, mode: 0o755, ..entry("g-directory", Node::Directory(page(4))) },
                Entry { mode: 0o777, ..entry("h-symlink", Node::Symlink(Bytes::from_static(b"../else/where"))) },
                Entry { mode: 0, mtime: 0, ..entry("i-linked", Node::Linked(7)) },
                Entry {
                    name: Bytes::from_static(b"\xff\xfe not UTF-8"),
                    mode: 0,
                    mtime: i64::MIN,
                    ..file("", 1, Content::Inline(Bytes::from_static(b"x")))
                },
            ]),
        ),
        ("split", Page::Split(slots)),
        ("list", Page::List(vec![chunk(5, 1_000_000), Part::Hole(3 << 20), chunk(6, 1)])),
        ("list split", Page::ListSplit(vec![(page(7), 4 << 20), (at(Home::Repository(Digest::from_bytes([0xaa; 32])), 8), 1)])),
        (
            "link table",
            Page::LinkTable(vec![
                LinkedFile { number: 7, names: 2, mode: 0o600, mtime: 5, size: 70, content: Content::Parts(vec![chunk(9, 70)]) },
                LinkedFile {
                    number: 1 << 40,
                    names: 3,
                    mode: 0o644,
                    mtime: 6,
                    size: 2,
                    content: Content::Inline(Bytes::from_static(b"ab")),
                },
            ]),
        ),
        ("link table split", Page::LinkTableSplit(vec![(page(10), 63), (at(session("fix 42"), 11), 1 << 40)])),
    ]
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let mut text = String::new();
    for (name, page) in samples() {
        let body = encode_body(&page);
        let stored = encode_stored(&page, &Here(session("fix 42"))).unwrap();
        writeln!(text, "# {name}\nid {}\nbody {}\nstored {}\n", page_id(&body), hex::encode(&body), hex::encode(&stored)).unwrap();
    }
    let golden = include_str!("../../../../tests/golden/pages.txt");
    // Every stored page of every store has this form. Another form is another version, and this one must still be read.
    assert_eq!(text, golden, "the pages now are:\n{text}");
}

#[test]
fn stored_pages_come_back_with_absolute_places() {
    for (name, page) in samples() {
        let id = page_id(&encode_body(&page));
        let stored = Bytes::from(encode_stored(&page, &Here(session("fix 42"))).unwrap());
        // The same pack, copied to another session: what it says of itself and its neighbours moves with it.
        for home in ["fix 42", "copied"] {
            let read = decode_stored(id, &stored, &from(home)).unwrap();
            assert_eq!(encode_body(&read), encode_body(&page), "{name}");
            references(&read, &mut |reference| {
                let place = match reference {
                    Reference::Page(link) => &link.place,
                    Reference::Chunk(link, _) => &link.place,
                };
                let Place::At(found) = place else { panic!("{name}: {reference} has no place") };
                match &*found.home {
                    Home::Session(session) => assert!(session.session.as_str() == home || session.session.as_str() == "other", "{name}"),
                    Home::Repository(_) => assert_eq!(found.pack, PackId::from_bytes([8; 32])),
                }
                match reference {
                    Reference::Chunk(link, len) => {
                        assert_eq!((found.pack, found.frame, found.len), (from(home).pack, 8, len));
                        assert_eq!(found.start, 100 * u32::from(link.id.as_bytes()[0]));
                    }
                    Reference::Page(link) if found.pack == from(home).pack => {
                        assert_eq!((found.frame, found.len), (5008, 200 + u32::from(link.id.as_bytes()[0])));
                    }
                    Reference::Page(_) => assert_eq!((found.frame, found.stored, found.len), (70_000, 400, 350)),
                }
            });
        }
    }
}

#[test]
fn a_page_that_names_what_its_writer_never_had_is_not_written() {
    struct Nothing(Home);
    impl HintContext for Nothing {
        fn home(&self) -> &Home {
            &self.0
        }
        fn chunk(&self, _id: ChunkId) -> Option<Spot> {
            None
        }
        fn page(&self, _id: PageId) -> Option<Spot> {
            None
        }
    }
    let error = encode_stored(&Page::List(vec![chunk(1, 5)]), &Nothing(session("a"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn every_flipped_bit_of_a_stored_page_is_damage_or_only_a_hint() {
    for (name, page) in samples() {
        let id = page_id(&encode_body(&page));
        let stored = encode_stored(&page, &Here(session("fix 42"))).unwrap();
        for byte in 0..stored.len() {
            for bit in 0..8 {
                let mut bad = stored.clone();
                bad[byte] ^= 1 << bit;
                match decode_stored(id, &bad.into(), &from("fix 42")) {
                    // A wrong hint leads to other bytes, whose id isn't the wanted one.
                    Ok(read) => assert_eq!(encode_body(&read), encode_body(&page), "{name}: byte {byte}"),
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::TooNew), "{name}: byte {byte}: {error:?}"),
                }
            }
        }
        for len in 0..stored.len() {
            assert!(decode_stored(id, &Bytes::copy_from_slice(&stored[..len]), &from("a")).is_err(), "{name} cut to {len}");
        }
        let mut long = stored.clone();
        long.push(0);
        assert!(decode_stored(id, &long.into(), &from("a")).is_err());
    }
}

#[test]
fn a_newer_version_is_said_to_be_newer() {
    let (_, page) = samples().remove(1);
    let mut stored = encode_stored(&page, &Here(session("a"))).unwrap();
    stored[1] = 2;
    let error = decode_stored(page_id(&encode_body(&page)), &stored.into(), &from("a")).unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::TooNew, "page_too_new"));
}

/// Reads what a body in hex holds; spaces are left out.
fn decoded(hex: &str) -> Result<Page> {
    decode_body(&Bytes::from(hex::decode(hex.replace(' ', "")).unwrap()))
}

const ID: &str = "5820 0101010101010101010101010101010101010101010101010101010101010101";

#[test]
fn bodies_that_break_a_rule_are_damage() {
    let long_name = format!("58ff{}", "61".repeat(255));
    let longer_name = format!("590100{}", "61".repeat(256));
    let long_target = format!("590fff{}", "61".repeat(4095));
    let longer_target = format!("591000{}", "61".repeat(4096));
    let chunk = |len: &str| format!("82 {ID} {len}");
    let parts17 = format!("91{}", "82 5820 0101010101010101010101010101010101010101010101010101010101010101 1841".repeat(17));
    let slot = |entries: &str, bytes: &str| format!("83 {ID} {bytes} {entries}");
    let split = |slot: &str, more: &str| format!("82 01 90 {slot} {more}");
    let none15 = "f6".repeat(15);
    let good = [
        "82 00 80".to_owned(),
        "82 00 81 86 4161 00 00 00 00 40".into(),
        format!("82 00 81 86 {long_name} 00 00 00 00 40"),
        format!("82 00 81 85 4161 02 00 00 {long_target}"),
        "82 00 82 83 4161 03 01 83 4162 03 01".into(),
        format!("82 00 81 86 4161 00 00 00 1841 82 00 {ID}"),
        split(&slot("1903e8", "1a00010000"), &none15),
    ];
    for hex in good {
        assert!(decoded(&hex).is_ok(), "{hex}: {:?}", decoded(&hex));
    }
    let bad = [
        // Not what a body is at all.
        String::new(),
        "00".into(),
        "80".into(),
        "81 00".into(),
        "83 00 80 80".into(),
        "82 06 80".into(),
        "82 00 40".into(),
        "82 00 80 00".into(),
        "82 20 80".into(),
        // Forms that aren't the deterministic one.
        "82 1800 80".into(),
        "9f 00 80 ff".into(),
        "82 00 9f ff".into(),
        "82 00 81 86 5f 4161 ff 00 00 00 00 40".into(),
        "82 00 81 86 5801 61 00 00 00 00 40".into(),
        "82 00 81 86 4161 00 1817 00 00 40".into(),
        "82 00 81 86 4161 00 00 3800 00 40".into(),
        "c0 82 00 80".into(),
        "82 00 fb 0000000000000000".into(),
        // Counts that promise more than there is.
        "82 00 9a 00989680".into(),
        "82 00 9b 7fffffffffffffff".into(),
        "82 00 81 86 5b 7fffffffffffffff".into(),
        format!("82 02 9b ffffffffffffffff {}", chunk("01")),
        // Nesting.
        "82 00".to_owned() + &" 81".repeat(10_000),
        "81".repeat(10_000),
        // Names.
        "82 00 81 86 40 00 00 00 00 40".into(),
        "82 00 81 86 412e 00 00 00 00 40".into(),
        "82 00 81 86 422e2e 00 00 00 00 40".into(),
        "82 00 81 86 43612f62 00 00 00 00 40".into(),
        "82 00 81 86 426100 00 00 00 00 40".into(),
        "82 00 81 86 6161 00 00 00 00 40".into(),
        format!("82 00 81 86 {longer_name} 00 00 00 00 40"),
        // Order.
        "82 00 82 83 4162 03 01 83 4161 03 01".into(),
        "82 00 82 83 4161 03 01 83 4161 03 01".into(),
        "82 00 82 83 4161 03 01 83 40 03 01".into(),
        // Kinds, modes and numbers.
        "82 00 81 86 4161 04 00 00 00 40".into(),
        "82 00 81 86 4161 00 190200 00 00 40".into(),
        "82 00 81 86 4161 00 20 00 00 40".into(),
        "82 00 81 86 4161 00 00 1b8000000000000000 00 40".into(),
        "82 00 81 85 4161 00 00 00 00".into(),
        "82 00 81 86 4161 03 01 00 00 00".into(),
        "82 00 81 83 4161 03 1bffffffffffffffff".into(),
        "82 00 81 85 4161 02 00 00 40".into(),
        "82 00 81 85 4161 02 00 00 426100".into(),
        format!("82 00 81 85 4161 02 00 00 {longer_target}"),
        format!("82 00 81 85 4161 01 00 00 {}", "581f ".to_owned() + &"01".repeat(31)),
        // Contents that aren't of their size, or not in the form of their size.
        "82 00 81 86 4161 00 00 00 01 40".into(),
        format!("82 00 81 86 4161 00 00 00 1841 5841{}", "00".repeat(65)),
        format!("82 00 81 86 4161 00 00 00 1840 82 00 {ID}"),
        format!("82 00 81 86 4161 00 00 00 1a00100001 82 00 {ID}"),
        format!("82 00 81 86 4161 00 00 00 1b0000000100000001 82 00 {ID}"),
        format!("82 00 81 86 4161 00 00 00 1841 82 01 81 {}", chunk("1841")),
        format!("82 00 81 86 4161 00 00 00 1842 82 01 82 {} 02", chunk("1841")),
        format!("82 00 81 86 4161 00 00 00 1907d0 82 01 {parts17}"),
        "82 00 81 86 4161 00 00 00 1841 82 01 80".into(),
        "82 00 81 86 4161 00 00 00 1842 82 01 82 1841 01".into(),
        "82 00 81 86 4161 00 00 00 1841 82 03 80".into(),
        format!("82 00 81 86 4161 00 00 00 01 82 02 {ID}"),
        // Splits.
        split(&slot("00", "1a00010000"), &none15),
        split(&slot("1903e8", "18ff"), &none15),
        split(&slot("01", "1a00010000"), &none15),
        split(&slot("18c8", "190fa0"), &none15),
        split(&slot("1a02000000", "1b0000000100000000"), &none15),
        split(&slot("1bffffffffffffffff", "1bffffffffffffffff"), &none15),
        split(&slot("1903e8", "1a00010000"), &"f6".repeat(14)),
        split("f6", &none15),
        format!("82 01 91 {} {}", slot("1903e8", "1a00010000"), "f6".repeat(16)),
        split("f7", &none15),
        // Lists.
        "82 02 80".into(),
        "82 02 81 00".into(),
        "82 02 82 01 01".into(),
        format!("82 02 81 {}", chunk("00")),
        format!("82 02 81 {}", chunk("1a00100001")),
        "82 02 81 1bffffffffffffffff".into(),
        format!("82 02 83 1b7fffffffffffffff {} 01", chunk("01")),
        "82 03 80".into(),
        format!("82 03 81 82 {ID} 00"),
        format!("82 03 82 82 {ID} 1b7fffffffffffffff 82 {ID} 01"),
        format!("82 03 82 82 {ID} 1bffffffffffffffff 82 {ID} 1bffffffffffffffff"),
        // Tables of linked files.
        "82 04 80".into(),
        "82 04 81 86 01 00 00 00 00 40".into(),
        "82 04 82 86 02 02 00 00 00 40 86 01 02 00 00 00 40".into(),
        "82 04 82 86 01 02 00 00 00 40 86 01 02 00 00 00 40".into(),
        "82 04 81 86 1bffffffffffffffff 02 00 00 00 40".into(),
        "82 04 81 86 01 1b0000000100000000 00 00 00 40".into(),
        "82 05 80".into(),
        format!("82 05 82 82 {ID} 01 82 {ID} 01"),
        format!("82 05 81 82 {ID} 1bffffffffffffffff"),
    ];
    for hex in bad {
        let result = decoded(&hex);
        let shown = &hex[..hex.len().min(100)];
        assert_eq!(result.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Damaged), "{shown}");
    }
}

#[test]
fn a_body_beyond_the_longest_page_is_damage() {
    let mut entries: Vec<_> =
        (0..3000_u32).map(|n| Entry { name: Bytes::from(format!("{n:05}")), mode: 0, mtime: 0, node: Node::Linked(1) }).collect();
    assert!(check_page(&Page::Directory(entries.clone())).is_err());
    assert!(decode_body(&encode_body(&Page::Directory(entries.clone())).into()).is_err());
    entries.truncate(460);
    assert!(decode_body(&encode_body(&Page::Directory(entries.clone())).into()).is_err(), "a directory of more than one page");
    entries.truncate(450);
    assert!(decode_body(&encode_body(&Page::Directory(entries)).into()).is_ok());
    let mut parts: Vec<_> = (0..500_u32).map(|n| chunk(u8::try_from(n % 200).unwrap(), 100)).collect();
    assert!(decode_body(&encode_body(&Page::List(parts.clone())).into()).is_err());
    parts.truncate(400);
    assert!(decode_body(&encode_body(&Page::List(parts)).into()).is_ok());
}

#[test]
fn hints_that_lie_are_damage() {
    let page = Page::List(vec![chunk(1, 5), chunk(2, 6)]);
    let body = encode_body(&page);
    let id = page_id(&body);
    let stored = |hints: &str| {
        let mut out = vec![0x83, 1];
        cbor::put_bytes(&mut out, &body);
        out.extend_from_slice(&hex::decode(hints.replace(' ', "")).unwrap());
        Bytes::from(out)
    };
    let pack = "5820".to_owned() + &"cc".repeat(32);
    let read = |hints: &str| decode_stored(id, &stored(hints), &from("a"));
    let text = |bytes: &str| format!("{:02x}{}", 0x60 + bytes.len(), hex::encode(bytes));
    for good in [
        "83 81 81 00 83 00 08 06 84 00 00 00 05".to_owned(),
        format!("83 82 81 00 82 01 {pack} 86 00 08 06 01 08 06 84 00 00 01 00"),
        format!("83 81 83 02 {pack} {pack} 83 00 08 06 84 00 00 00 05"),
        format!("83 81 84 03 {} {} {pack} 83 00 08 06 84 00 00 00 05", text("agent"), text("session")),
    ] {
        assert!(read(&good).is_ok(), "{good}: {:?}", read(&good));
    }
    for bad in [
        // Too few and too many, tables that are named beyond their ends, and bytes behind.
        "83 81 81 00 83 00 08 06 82 00 00".to_owned(),
        "83 81 81 00 83 00 08 06 86 00 00 00 05 00 05".into(),
        "83 81 81 00 83 00 08 06 84 00 00 01 05".into(),
        "83 81 81 00 83 01 08 06 84 00 00 00 05".into(),
        "83 81 81 00 82 00 08 84 00 00 00 05".into(),
        "83 80 80 80".into(),
        "83 81 81 00 83 00 08 06 84 00 00 00 05 00".into(),
        "83 81 81 00 83 00 08 06 9a 00989680 00 00 00 05".into(),
        "83 9a 00989680 81 00".into(),
        // Places that can't be.
        "83 81 81 00 83 00 08 05 84 00 00 00 05".into(),
        "83 81 81 00 83 00 1a02000000 06 84 00 00 00 05".into(),
        "83 81 81 00 83 00 1affffffff 1affffffff 84 00 00 00 05".into(),
        "83 81 81 00 83 00 1b0000000100000000 06 84 00 00 00 05".into(),
        "83 81 81 00 83 00 08 06 84 00 1a00100000 00 05".into(),
        "83 81 81 00 83 00 08 06 84 00 1affffffff 00 05".into(),
        // Homes that can't be.
        "83 81 81 04 83 00 08 06 84 00 00 00 05".into(),
        "83 81 82 00 00 83 00 08 06 84 00 00 00 05".into(),
        "83 81 82 01 4101 83 00 08 06 84 00 00 00 05".into(),
        format!("83 81 84 03 {} {} {pack} 83 00 08 06 84 00 00 00 05", text(""), text("session")),
        format!("83 81 84 03 {} {} {pack} 83 00 08 06 84 00 00 00 05", text("agent"), text("a\nb")),
        format!("83 81 84 03 62c328 {} {pack} 83 00 08 06 84 00 00 00 05", text("session")),
    ] {
        assert_eq!(read(&bad).map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Damaged), "{bad}");
    }
}

fn contents() -> impl Strategy<Value = (u64, Content)> {
    let part = prop_oneof![(any::<u8>(), 1..=1_000_000_u32).prop_map(|(n, len)| chunk(n, len)), (1_u64..1 << 40).prop_map(Part::Hole),];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..=64).prop_map(|bytes| (bytes.len() as u64, Content::Inline(bytes.into()))),
        prop::collection::vec(part, 1..=16).prop_filter_map("two holes in a row, or too small", |parts| {
            let size = checked_parts(&parts).ok().filter(|size| *size > 64)?;
            Some((size, Content::Parts(parts)))
        }),
        (65_u64..1 << 62, any::<u8>()).prop_map(|(size, n)| (size, Content::List(page(n)))),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let node = prop_oneof![
        4 => contents().prop_map(|(size, content)| Node::File { size, content }),
        1 => any::<u8>().prop_map(|n| Node::Directory(page(n))),
        1 => prop::collection::vec(1_u8..=255, 1..100).prop_map(|target| Node::Symlink(target.into())),
        1 => (0_u64..1 << 63).prop_map(Node::Linked),
    ];
    let name = prop::collection::vec(any::<u8>(), 1..20);
    prop::collection::btree_map(name, (0_u16..=0o777, any::<i64>(), node), 0..12).prop_map(|all| {
        all.into_iter()
            .map(|(name, (mode, mtime, node))| {
                let (mode, mtime) = if matches!(node, Node::Linked(_)) { (0, 0) } else { (mode, mtime) };
                Entry { name: name.into(), mode, mtime, node }
            })
            .filter(|entry| checked_entry(entry).is_ok())
            .collect()
    })
}

proptest! {
    #[test]
    fn any_directory_comes_back(entries in entries()) {
        let page = Page::Directory(entries);
        let body = Bytes::from(encode_body(&page));
        prop_assert_eq!(decode_body(&body).unwrap(), page.clone());
        let Page::Directory(entries) = &page else { unreachable!() };
        let bytes = entries.iter().map(entry_len).sum();
        prop_assert_eq!(directory_len(entries.len() as u64, bytes), body.len() as u64);
        let stored = Bytes::from(encode_stored(&page, &Here(session("a"))).unwrap());
        prop_assert_eq!(encode_body(&decode_stored(page_id(&body), &stored, &from("a")).unwrap()), body);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        if let Ok(page) = decode_body(&bytes) {
            prop_assert_eq!(encode_body(&page), bytes.clone());
        }
        let _checked = decode_stored(page_id(&bytes), &bytes, &from("a"));
    }

    #[test]
    fn changed_bodies_are_refused_or_are_another_page(entries in entries(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut body = encode_body(&Page::Directory(entries));
        let at = at.index(body.len());
        body[at] = byte;
        let body = Bytes::from(body);
        if let Ok(page) = decode_body(&body) {
            prop_assert_eq!(encode_body(&page), body);
        }
    }
}
