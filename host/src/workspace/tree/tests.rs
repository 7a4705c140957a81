use proptest::prelude::*;

use super::*;
use crate::workspace::memory::MemoryObjects;
use crate::workspace::page::{Content, Link, Node, Part, Place};

type Model = BTreeMap<Bytes, Entry>;

pub(in crate::workspace) fn file(name: &str, tag: u64) -> Entry {
    let id = crate::id::ChunkId::of(&tag.to_be_bytes());
    let content = Content::Parts(vec![Part::Chunk(Link { id, place: Place::Fresh }, 4000)]);
    Entry {
        name: Bytes::copy_from_slice(name.as_bytes()),
        mode: 0o644,
        mtime: 1_700_000_000_000_000_000 + tag.cast_signed(),
        node: Node::File { size: 4000, content },
    }
}

fn small(name: &str, tag: u64) -> Entry {
    let content = Content::Inline(Bytes::copy_from_slice(&tag.to_be_bytes()));
    Entry { name: Bytes::copy_from_slice(name.as_bytes()), mode: 0o600, mtime: 0, node: Node::File { size: 8, content } }
}

async fn at_once(objects: &MemoryObjects, model: &Model) -> PageLink {
    let changes = model.iter().map(|(name, entry)| (name.clone(), Some(entry.clone()))).collect();
    update(objects, &mut objects.clone(), None, changes).await.unwrap()
}

fn directory(names: std::ops::Range<u64>) -> Model {
    names.map(|n| file(&format!("file-{n:06}.rs"), n)).map(|entry| (entry.name.clone(), entry)).collect()
}

#[tokio::test]
async fn a_directory_of_50_000_changes_by_four_small_pages() {
    let objects = MemoryObjects::new();
    let top = at_once(&objects, &directory(0..50_000)).await;
    let (mut pages, mut bytes) = (0, 0);
    for n in (0..50_000).step_by(997) {
        let mut entry = file(&format!("file-{n:06}.rs"), n);
        entry.mtime += 1;
        let _before = objects.take_counts();
        let changes = BTreeMap::from([(entry.name.clone(), Some(entry))]);
        let _new = update(&objects, &mut objects.clone(), Some(&top), changes).await.unwrap();
        let counts = objects.take_counts();
        pages = pages.max(counts.page_writes);
        bytes = bytes.max(counts.page_bytes);
        assert_eq!(counts.page_reads, counts.page_writes);
    }
    assert!(pages <= 4, "{pages} pages");
    assert!(bytes <= 4 << 10, "{bytes} bytes");
}

#[tokio::test]
async fn a_change_writes_as_little_in_a_large_directory_as_in_a_small_one() {
    let objects = MemoryObjects::new();
    for files in [50, 1_000, 2_000, 10_000, 100_000] {
        let top = at_once(&objects, &directory(0..files)).await;
        let mut most = 0;
        for n in (0..files).step_by(usize::try_from(files / 20).unwrap()) {
            let mut entry = file(&format!("file-{n:06}.rs"), n);
            entry.mtime += 1;
            let _before = objects.take_counts();
            let _new =
                update(&objects, &mut objects.clone(), Some(&top), BTreeMap::from([(entry.name.clone(), Some(entry))])).await.unwrap();
            most = most.max(objects.take_counts().page_bytes);
        }
        assert!(most <= 6 << 10, "{most} bytes of pages in a directory of {files}");
    }
}

#[tokio::test]
async fn entries_that_are_longer_than_a_page_get_pages_of_their_own() {
    let objects = MemoryObjects::new();
    let link = |n: u8| Entry {
        name: Bytes::from(format!("{}{n:03}", "x".repeat(252))),
        mode: 0o777,
        mtime: 0,
        node: Node::Symlink(Bytes::from(vec![b't'; 4095])),
    };
    let model: Model = (0..40).map(link).map(|entry| (entry.name.clone(), entry)).collect();
    let top = at_once(&objects, &model).await;
    assert_eq!(list(&objects, &top).await.unwrap(), model.values().cloned().collect::<Vec<_>>());
    let others = model.keys().skip(1).map(|name| (name.clone(), None)).collect();
    let one = update(&objects, &mut objects.clone(), Some(&top), others).await.unwrap();
    assert!(matches!(&*objects.page(&one).await.unwrap(), Page::Directory(entries) if entries.len() == 1));
}

#[tokio::test]
async fn lookup_reads_one_page_of_each_level() {
    let objects = MemoryObjects::new();
    let model = directory(0..20_000);
    let top = at_once(&objects, &model).await;
    let _built = objects.take_counts();
    assert_eq!(lookup(&objects, &top, b"file-012345.rs").await.unwrap(), model.get(&b"file-012345.rs"[..]).cloned());
    assert_eq!(lookup(&objects, &top, b"file-x").await.unwrap(), None);
    assert!(objects.take_counts().page_reads <= 8);
}

#[tokio::test]
async fn splitting_and_joining_are_the_same_whatever_came_before() {
    let objects = MemoryObjects::new();
    let mut sink = objects.clone();
    let few = at_once(&objects, &directory(0..40)).await;
    assert!(matches!(&*objects.page(&few).await.unwrap(), Page::Directory(_)));
    let more = directory(40..5000).into_iter().map(|(name, entry)| (name, Some(entry))).collect();
    let many = update(&objects, &mut sink, Some(&few), more).await.unwrap();
    assert_eq!(many, at_once(&objects, &directory(0..5000)).await);
    assert!(matches!(&*objects.page(&many).await.unwrap(), Page::Split(_)));
    let fewer = directory(40..5000).into_keys().map(|name| (name, None)).collect();
    assert_eq!(update(&objects, &mut sink, Some(&many), fewer).await.unwrap(), few);
}

#[tokio::test]
async fn nothing_changed_writes_nothing() {
    let objects = MemoryObjects::new();
    let model = directory(0..3000);
    let top = at_once(&objects, &model).await;
    let _built = objects.take_counts();
    let mut changes: BTreeMap<_, _> = model.into_iter().map(|(name, entry)| (name, Some(entry))).collect();
    changes.insert(Bytes::from_static(b"absent"), None);
    assert_eq!(update(&objects, &mut objects.clone(), Some(&top), changes).await.unwrap(), top);
    assert_eq!(update(&objects, &mut objects.clone(), Some(&top), BTreeMap::new()).await.unwrap(), top);
    assert_eq!(objects.take_counts().page_writes, 0);
}

#[tokio::test]
async fn an_empty_directory_is_a_page_without_entries() {
    let objects = MemoryObjects::new();
    let mut sink = objects.clone();
    let empty = update(&objects, &mut sink, None, BTreeMap::new()).await.unwrap();
    assert_eq!(list(&objects, &empty).await.unwrap(), []);
    let top = at_once(&objects, &directory(0..2000)).await;
    let all = directory(0..2000).into_keys().map(|name| (name, None)).collect();
    assert_eq!(update(&objects, &mut sink, Some(&top), all).await.unwrap(), empty);
}

#[tokio::test]
async fn an_entry_that_breaks_a_rule_is_refused() {
    let objects = MemoryObjects::new();
    for name in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
        let entry = small(name, 1);
        let changes = BTreeMap::from([(entry.name.clone(), Some(entry))]);
        assert!(update(&objects, &mut objects.clone(), None, changes).await.is_err(), "{name:?}");
    }
    let changes = BTreeMap::from([(Bytes::from_static(b"other"), Some(small("name", 1)))]);
    assert!(update(&objects, &mut objects.clone(), None, changes).await.is_err());
}

fn slots_of(slots: Vec<(usize, SplitSlot)>) -> Page {
    let mut all = vec![None; FANOUT];
    for (at, slot) in slots {
        all[at] = Some(slot);
    }
    Page::Split(all)
}

#[tokio::test]
async fn pages_that_contradict_the_page_above_are_damage() {
    let objects = MemoryObjects::new();
    let top = at_once(&objects, &directory(0..2000)).await;
    let page = objects.page(&top).await.unwrap();
    let Page::Split(slots) = &*page else { panic!("not split") };
    let (right, wrong) = (slots[3].clone().unwrap(), slots[4].clone().unwrap());
    let lying = |change: fn(&mut SplitSlot)| {
        let mut slots = slots.clone();
        change(slots[3].as_mut().unwrap());
        Page::Split(slots)
    };
    let bad = [
        // Totals that aren't the page's.
        lying(|slot| slot.entries += 1),
        lying(|slot| slot.bytes -= 1),
        // A page in another's slot, in two slots, and the two together with right totals.
        slots_of((0..FANOUT).map(|at| (at, right.clone())).collect()),
        slots_of((0..FANOUT).map(|at| (at, wrong.clone())).collect()),
        slots_of((0..FANOUT).map(|at| (at, if at == 3 { wrong.clone() } else { right.clone() })).collect()),
    ];
    for page in bad {
        let link = Sink::page(&mut objects.clone(), page).await.unwrap();
        let error = list(&objects, &link).await.unwrap_err();
        assert_eq!(error.stable_code(), "page_damaged");
    }
}

#[tokio::test]
async fn a_split_that_names_itself_over_and_over_is_found_at_once() {
    let objects = MemoryObjects::new();
    let leaf = at_once(&objects, &directory(0..200)).await;
    let entries = list(&objects, &leaf).await.unwrap();
    let mut slot = SplitSlot { page: leaf, bytes: entries.iter().map(entry_len).sum(), entries: entries.len() as u64 };
    // Four levels: 65,536 leaves if they were all followed.
    for _ in 0..4 {
        let page = slots_of((0..FANOUT).map(|at| (at, slot.clone())).collect());
        slot =
            SplitSlot { page: Sink::page(&mut objects.clone(), page).await.unwrap(), bytes: slot.bytes * 16, entries: slot.entries * 16 };
    }
    let _built = objects.take_counts();
    assert!(list(&objects, &slot.page).await.is_err());
    assert!(objects.take_counts().page_reads <= 5 * BATCH as u64);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u64),
    Remove(u16),
    Batch,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u16..2000, 0_u64..3).prop_map(|(name, tag)| Step::Put(name, tag)),
        3 => (0_u16..2000).prop_map(Step::Remove),
        1 => Just(Step::Batch),
    ];
    prop::collection::vec(step, 0..1500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_order_of_edits_gives_what_building_at_once_gives(steps in steps(), start in 0_u64..1500) {
        futures::executor::block_on(async {
            let objects = MemoryObjects::new();
            let mut sink = objects.clone();
            let mut model = directory(0..start);
            let mut top = at_once(&objects, &model).await;
            let mut changes = BTreeMap::new();
            for step in steps.into_iter().chain([Step::Batch]) {
                match step {
                    Step::Put(n, tag) => {
                        let entry = if tag == 0 { small(&format!("file-{n:06}.rs"), tag) } else { file(&format!("file-{n:06}.rs"), tag) };
                        model.insert(entry.name.clone(), entry.clone());
                        changes.insert(entry.name.clone(), Some(entry));
                    }
                    Step::Remove(n) => {
                        let name = Bytes::from(format!("file-{n:06}.rs"));
                        model.remove(&name);
                        changes.insert(name, None);
                    }
                    Step::Batch => {
                        top = update(&objects, &mut sink, Some(&top), std::mem::take(&mut changes)).await.unwrap();
                    }
                }
            }
            assert_eq!(top.id, at_once(&objects, &model).await.id);
            assert_eq!(list(&objects, &top).await.unwrap(), model.values().cloned().collect::<Vec<_>>());
            for n in (0..2000).step_by(37) {
                let name = format!("file-{n:06}.rs");
                assert_eq!(lookup(&objects, &top, name.as_bytes()).await.unwrap(), model.get(name.as_bytes()).cloned());
            }
        });
    }
}
