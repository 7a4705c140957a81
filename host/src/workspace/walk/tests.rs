use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::workspace::memory::MemoryObjects;
use crate::workspace::page::{Content, LinkedFile};
use crate::workspace::{link_table, tree};

/// What a path of a model is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::workspace) enum Model {
    File(u64),
    Directory(u64),
    Symlink(u64),
    Linked(u64),
}

pub(in crate::workspace) fn content(tag: u64) -> Content {
    Content::Inline(Bytes::copy_from_slice(&tag.to_be_bytes()))
}

/// Stores a model's directory and returns its page; a path's parents are made as they are needed.
async fn directory(objects: &MemoryObjects, model: &BTreeMap<String, Model>, prefix: &str) -> PageLink {
    let mut entries = BTreeMap::new();
    for (path, what) in model.range(prefix.to_owned()..) {
        let Some(name) = path.strip_prefix(prefix) else { break };
        if name.contains('/') {
            continue;
        }
        let (mode, tag, node) = match what {
            Model::File(tag) => (0o644, *tag, Node::File { size: 8, content: content(*tag) }),
            Model::Directory(tag) => (0o755, *tag, Node::Directory(Box::pin(directory(objects, model, &format!("{path}/"))).await)),
            Model::Symlink(tag) => (0o777, 0, Node::Symlink(Bytes::from(format!("target-{tag}")))),
            Model::Linked(number) => (0, 0, Node::Linked(*number)),
        };
        let name = Bytes::copy_from_slice(name.as_bytes());
        entries.insert(name.clone(), Some(Entry { name, mode, mtime: tag.cast_signed(), node }));
    }
    tree::update(objects, &mut objects.clone(), None, entries).await.unwrap()
}

/// Stores a model; `files` are the tags of its linked files.
pub(in crate::workspace) async fn root(objects: &MemoryObjects, model: &BTreeMap<String, Model>, files: &BTreeMap<u64, u64>) -> Root {
    let page = directory(objects, model, "").await;
    let mut table = BTreeMap::new();
    for (number, tag) in files {
        let names = model.values().filter(|what| **what == Model::Linked(*number)).count();
        if names > 0 {
            let names = u32::try_from(names).unwrap();
            let file = LinkedFile { number: *number, names, mode: 0o644, mtime: 0, size: 8, content: content(*tag) };
            table.insert(*number, Some(file));
        }
    }
    let links = link_table::update(objects, &mut objects.clone(), None, table).await.unwrap();
    Root { page, links, entries: model.len() as u64, bytes: 0 }
}

/// A path of up to three of a few names, with directories for its parents.
pub(in crate::workspace) fn models() -> impl Strategy<Value = BTreeMap<String, Model>> {
    let path = prop::collection::vec(0_u8..12, 1..4);
    let what = prop_oneof![
        6 => (0_u64..3).prop_map(Model::File),
        2 => (0_u64..3).prop_map(Model::Directory),
        1 => (0_u64..3).prop_map(Model::Symlink),
        2 => (0_u64..5).prop_map(Model::Linked),
    ];
    (prop::collection::vec((path, what), 0..60), prop::bool::weighted(0.3)).prop_map(|(entries, wide)| {
        let mut model = BTreeMap::new();
        for (names, what) in entries {
            let mut path = String::new();
            for name in &names[..names.len() - 1] {
                path.push_str(&format!("d{name}"));
                model.insert(path.clone(), Model::Directory(0));
                path.push('/');
            }
            let last = names.last().copied().unwrap_or(0);
            let letter = if matches!(what, Model::Directory(_)) { 'd' } else { 'f' };
            model.insert(format!("{path}{letter}{last}"), what);
        }
        if wide {
            // Wide enough to be split.
            for n in 0..700 {
                model.insert(format!("wide-{n}"), Model::File(n));
            }
        }
        model
    })
}

async fn walked(objects: &MemoryObjects, root: &Root) -> Vec<Walked> {
    let mut walk = Walk::new(objects, root);
    let mut all = Vec::new();
    while let Some(next) = walk.next().await.unwrap() {
        all.push(next);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_walk_sees_everything_once_and_parents_first(model in models()) {
        futures::executor::block_on(async {
            let objects = MemoryObjects::new();
            let root = root(&objects, &model, &BTreeMap::new()).await;
            let all = walked(&objects, &root).await;
            let mut paths: Vec<_> = all.iter().map(|walked| String::from_utf8(walked.path.to_vec()).unwrap()).collect();
            for (at, path) in paths.iter().enumerate() {
                if let Some((parent, _)) = path.rsplit_once('/') {
                    assert!(paths[..at].iter().any(|before| before == parent), "{path} comes before its directory");
                }
            }
            paths.sort_unstable();
            assert_eq!(paths, model.keys().cloned().collect::<Vec<_>>());
        });
    }
}

#[tokio::test]
async fn a_root_with_another_number_of_entries_is_damage() {
    let objects = MemoryObjects::new();
    let model = BTreeMap::from([("a".into(), Model::File(1)), ("b".into(), Model::Directory(1)), ("b/c".into(), Model::File(1))]);
    let root = root(&objects, &model, &BTreeMap::new()).await;
    for entries in [2, 4] {
        let mut walk = Walk::new(&objects, &Root { entries, ..root.clone() });
        let error = loop {
            match walk.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{entries} entries were believed"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), crate::ErrorKind::Damaged);
    }
}

#[tokio::test]
async fn directories_that_share_a_page_end_at_the_number_of_entries() {
    let objects = MemoryObjects::new();
    let mut page = tree::update(&objects, &mut objects.clone(), None, BTreeMap::new()).await.unwrap();
    // Two names for the same directory, 200 levels deep: 2^200 paths.
    for _ in 0..200 {
        let entry = |name: &'static str| Entry { name: name.into(), mode: 0o755, mtime: 0, node: Node::Directory(page.clone()) };
        let changes = ["a", "b"].map(|name| (Bytes::from_static(name.as_bytes()), Some(entry(name)))).into();
        page = tree::update(&objects, &mut objects.clone(), None, changes).await.unwrap();
    }
    let mut walk = Walk::new(&objects, &Root { page, links: None, entries: 10_000, bytes: 0 });
    let mut seen = 0;
    let error = loop {
        match walk.next().await {
            Ok(walked) => seen += u64::from(walked.is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), crate::ErrorKind::Damaged);
    assert!(seen <= 10_000);
}
