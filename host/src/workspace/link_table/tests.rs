use proptest::prelude::*;

use super::*;
use crate::workspace::memory::MemoryObjects;
use crate::workspace::page::{Content, Link, Part, Place};

fn file(number: u64, tag: u64) -> LinkedFile {
    let parts: Vec<_> = (0..=tag % 16)
        .map(|part| {
            Part::Chunk(Link { id: crate::id::ChunkId::of(&[part.to_be_bytes(), tag.to_be_bytes()].concat()), place: Place::Fresh }, 1000)
        })
        .collect();
    LinkedFile { number, names: 2, mode: 0o644, mtime: 5, size: 1000 * parts.len() as u64, content: Content::Parts(parts) }
}

async fn at_once(objects: &MemoryObjects, model: &BTreeMap<u64, LinkedFile>) -> Option<PageLink> {
    let changes = model.iter().map(|(number, file)| (*number, Some(file.clone()))).collect();
    update(objects, &mut objects.clone(), None, changes).await.unwrap()
}

#[tokio::test]
async fn one_change_of_a_large_table_touches_few_pages() {
    let objects = MemoryObjects::new();
    let model: BTreeMap<_, _> = (0..100_000).map(|n| (n, file(n, 0))).collect();
    let table = at_once(&objects, &model).await.unwrap();
    let _built = objects.take_counts();
    assert_eq!(get(&objects, &table, 77_777).await.unwrap(), Some(file(77_777, 0)));
    assert_eq!(get(&objects, &table, 100_000).await.unwrap(), None);
    assert!(objects.take_counts().page_reads <= 6);
    assert_eq!(largest(&objects, &table).await.unwrap(), Some(99_999));
    let changes = BTreeMap::from([(50_000, Some(file(50_000, 1)))]);
    update(&objects, &mut objects.clone(), Some(&table), changes).await.unwrap();
    let counts = objects.take_counts();
    assert!(counts.page_writes <= 3 && counts.page_bytes <= 20 << 10, "{counts:?}");
}

#[tokio::test]
async fn nothing_changed_writes_nothing_and_nothing_left_is_no_table() {
    let objects = MemoryObjects::new();
    let model: BTreeMap<_, _> = (0..500).map(|n| (n * 3, file(n * 3, n))).collect();
    let table = at_once(&objects, &model).await;
    let _built = objects.take_counts();
    let mut same: BTreeMap<_, _> = model.iter().map(|(n, file)| (*n, Some(file.clone()))).collect();
    same.insert(1, None);
    assert_eq!(update(&objects, &mut objects.clone(), table.as_ref(), same).await.unwrap(), table);
    assert_eq!(objects.take_counts().page_writes, 0);
    let none = model.keys().map(|n| (*n, None)).collect();
    assert_eq!(update(&objects, &mut objects.clone(), table.as_ref(), none).await.unwrap(), None);
    assert_eq!(update(&objects, &mut objects.clone(), None, BTreeMap::new()).await.unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_edits_gives_what_building_at_once_gives(
        start in 0_u64..900,
        batches in prop::collection::vec(prop::collection::btree_map(0_u64..1500, prop::option::of(0_u64..40), 0..60), 0..12),
    ) {
        futures::executor::block_on(async {
            let objects = MemoryObjects::new();
            let mut model: BTreeMap<_, _> = (0..start).map(|n| (n, file(n, n % 7))).collect();
            let mut table = at_once(&objects, &model).await;
            for batch in batches {
                let changes: BTreeMap<_, _> = batch.into_iter().map(|(n, tag)| (n, tag.map(|tag| file(n, tag)))).collect();
                for (number, change) in &changes {
                    match change {
                        Some(file) => model.insert(*number, file.clone()),
                        None => model.remove(number),
                    };
                }
                table = update(&objects, &mut objects.clone(), table.as_ref(), changes).await.unwrap();
                assert_eq!(table, at_once(&objects, &model).await);
            }
            if let Some(table) = &table {
                assert_eq!(list(&objects, table).await.unwrap(), model.values().cloned().collect::<Vec<_>>());
                for number in (0..1500).step_by(41) {
                    assert_eq!(get(&objects, table, number).await.unwrap(), model.get(&number).cloned());
                }
            } else {
                assert!(model.is_empty());
            }
        });
    }
}
