use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::walk::tests::{Model, content, models, root};
use super::*;
use crate::workspace::memory::MemoryObjects;

/// What of an entry counts as a change.
fn seen(model: &BTreeMap<String, Model>, files: &BTreeMap<u64, u64>, path: &str) -> Option<(u16, i64, What)> {
    let file = |tag| What::File { size: 8, content: content(tag) };
    model.get(path).map(|what| match what {
        Model::File(tag) => (0o644, tag.cast_signed(), file(*tag)),
        Model::Directory(tag) => (0o755, tag.cast_signed(), What::Directory),
        Model::Symlink(tag) => (0o777, 0, What::Symlink(format!("target-{tag}").into())),
        Model::Linked(number) => (0o644, 0, file(files[number])),
    })
}

fn viewed(view: Option<EntryView>) -> Option<(u16, i64, What)> {
    view.map(|view| (view.mode, view.mtime, view.what))
}

async fn agrees(a: (&BTreeMap<String, Model>, &BTreeMap<u64, u64>), b: (&BTreeMap<String, Model>, &BTreeMap<u64, u64>)) {
    let objects = MemoryObjects::new();
    let (root_a, root_b) = (root(&objects, a.0, a.1).await, root(&objects, b.0, b.1).await);
    let found = diff(&objects, &root_a, &objects, &root_b).await.unwrap();
    let found: Vec<_> = found
        .into_iter()
        .map(|change| (String::from_utf8(change.path.to_vec()).unwrap(), viewed(change.before), viewed(change.after)))
        .collect();
    let paths: std::collections::BTreeSet<_> = a.0.keys().chain(b.0.keys()).collect();
    let expected: Vec<_> = paths
        .into_iter()
        .map(|path| (path.clone(), seen(a.0, a.1, path), seen(b.0, b.1, path)))
        .filter(|(_, before, after)| before != after)
        .collect();
    assert_eq!(found, expected);
}

fn tags() -> impl Strategy<Value = BTreeMap<u64, u64>> {
    prop::collection::vec(0_u64..3, 5).prop_map(|tags| (0..).zip(tags).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_diff_is_what_comparing_all_paths_gives(a in models(), b in models(), files_a in tags(), files_b in tags()) {
        futures::executor::block_on(agrees((&a, &files_a), (&b, &files_b)));
    }

    #[test]
    fn small_changes_are_found(
        a in models(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0_u64..9)), 1..4),
        files_a in tags(),
        files_b in tags(),
    ) {
        let mut b = a.clone();
        for (index, tag) in edits {
            let files: Vec<_> = b.iter().filter(|(_, what)| !matches!(what, Model::Directory(_))).map(|(path, _)| path.clone()).collect();
            if !files.is_empty() {
                let path = files[index.index(files.len())].clone();
                match tag {
                    Some(tag) => b.insert(path, Model::File(tag)),
                    None => b.remove(&path),
                };
            }
        }
        futures::executor::block_on(agrees((&a, &files_a), (&b, &files_b)));
    }
}

#[tokio::test]
async fn equal_pages_are_never_read() {
    let objects = MemoryObjects::new();
    let mut model = BTreeMap::new();
    for directory in 0..50 {
        model.insert(format!("d{directory}"), Model::Directory(0));
        for file in 0..400 {
            model.insert(format!("d{directory}/f{file}"), Model::File(file));
        }
    }
    let before = root(&objects, &model, &BTreeMap::new()).await;
    model.insert("d7/f7".into(), Model::File(1000));
    model.remove("d8/f9");
    let after = root(&objects, &model, &BTreeMap::new()).await;
    let _built = objects.take_counts();
    let changes = diff(&objects, &before, &objects, &after).await.unwrap();
    assert_eq!(changes.iter().map(|change| &change.path[..]).collect::<Vec<_>>(), [&b"d7/f7"[..], b"d8/f9"]);
    // The top, two directories and a part of each, on both sides.
    assert!(objects.take_counts().page_reads <= 2 * 5);
    assert!(diff(&objects, &after, &objects, &after).await.unwrap().is_empty());
    assert_eq!(objects.take_counts().page_reads, 0);
}
