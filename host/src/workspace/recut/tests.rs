use proptest::prelude::*;

use super::super::list::{build, read, tests::noise};
use super::*;
use crate::workspace::memory::MemoryObjects;

/// The new file as it is, from which what was written is taken.
struct File(Vec<u8>);

#[async_trait::async_trait]
impl Written for File {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        assert!(range.end - range.start <= CHUNK_MAX as u64);
        Ok(Bytes::copy_from_slice(&self.0[to_usize(range.start)?..to_usize(range.end)?]))
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Write { at: u64, len: usize, seed: u64, zeros: bool },
    Resize(u64),
}

/// Applies edits to bytes, as the filesystem above does it.
fn apply(bytes: &mut Vec<u8>, edits: &[Edit]) -> (u64, Vec<Range<u64>>) {
    let (mut kept, mut written) = (bytes.len() as u64, Vec::<Range<u64>>::new());
    for edit in edits {
        match edit {
            Edit::Write { at, len, seed, zeros } => {
                let (at, len) = (usize::try_from(*at).unwrap() % (bytes.len() + 1), *len);
                if bytes.len() < at + len {
                    bytes.resize(at + len, 0);
                }
                bytes[at..at + len].copy_from_slice(&if *zeros { vec![0; len] } else { noise(*seed, len) });
                written.push(at as u64..(at + len) as u64);
            }
            Edit::Resize(size) => {
                bytes.resize(usize::try_from(*size).unwrap(), 0);
                kept = kept.min(*size);
                written.iter_mut().for_each(|range| range.end = range.end.min(*size));
                written.retain(|range| range.start < range.end);
            }
        }
    }
    written.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in written {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    (kept, merged)
}

async fn check(old: &[u8], edits: &[Edit]) -> crate::workspace::memory::MemoryCounts {
    let objects = MemoryObjects::new();
    let mut sink = objects.clone();
    let base = build(&mut sink, None, old).await.unwrap();
    let mut new = old.to_vec();
    let (kept, written) = apply(&mut new, edits);
    let size = new.len() as u64;
    let _built = objects.take_counts();
    let edits = Edits { size, kept, written: &written };
    let content = recut(&objects, &mut sink, &base, old.len() as u64, edits, &File(new.clone())).await.unwrap();
    let counts = objects.take_counts();
    assert_eq!(read(&objects, &content, size, 0..size).await.unwrap(), new);
    let whole = build(&mut sink, None, &new).await.unwrap();
    assert!(same_content(&content, &whole), "{content:?} is not {whole:?}");
    counts
}

fn write(at: u64, len: usize) -> Edit {
    Edit::Write { at, len, seed: at + 77, zeros: false }
}

#[tokio::test]
async fn an_append_stores_little() {
    let counts = check(&noise(1, 24 << 20), &[write(24 << 20, 1 << 20)]).await;
    assert!(counts.chunk_writes <= 8, "{counts:?}");
    assert!(counts.chunk_reads <= 2, "{counts:?}");
    assert!(counts.page_writes <= 3, "{counts:?}");
}

#[tokio::test]
async fn one_byte_in_the_middle_stores_few_chunks() {
    let counts = check(&noise(1, 24 << 20), &[write(12 << 20, 1)]).await;
    assert!(counts.chunk_writes <= 3, "{counts:?}");
    assert!(counts.chunk_reads <= 8, "{counts:?}");
    assert!(counts.page_writes <= 3, "{counts:?}");
}

#[tokio::test]
async fn writing_what_is_there_stores_nothing() {
    let old = noise(1, 20 << 20);
    let objects = MemoryObjects::new();
    let mut sink = objects.clone();
    for (size, part) in [(10, 2), (1000, 2), (1 << 20, 2), (5 << 20, 2), (20 << 20, 2), (20 << 20, 1)] {
        let old = &old[..size];
        let base = build(&mut sink, None, old).await.unwrap();
        let _built = objects.take_counts();
        let size = size as u64;
        let written = 0..size / part;
        let edits = Edits { size, kept: size, written: std::slice::from_ref(&written) };
        let content = recut(&objects, &mut sink, &base, size, edits, &File(old.to_vec())).await.unwrap();
        assert_eq!(content, base);
        let counts = objects.take_counts();
        assert_eq!((counts.chunk_writes, counts.page_writes), (0, 0), "{size}");
    }
}

#[tokio::test]
async fn growing_by_zeros_costs_nothing() {
    let old = noise(9, 3 << 20);
    let objects = MemoryObjects::new();
    let mut sink = objects.clone();
    let base = build(&mut sink, None, &old).await.unwrap();
    let _built = objects.take_counts();
    let size = 1 << 42;
    let edits = Edits { size, kept: 3 << 20, written: &[] };
    let content = recut(&objects, &mut sink, &base, 3 << 20, edits, &File(Vec::new())).await.unwrap();
    assert!(objects.take_counts().chunk_writes <= 2);
    assert_eq!(read(&objects, &content, size, size - 3..size).await.unwrap(), vec![0; 3]);
    // And back again.
    let edits = Edits { size: 3 << 20, kept: 3 << 20, written: &[] };
    let back = recut(&objects, &mut sink, &content, size, edits, &File(Vec::new())).await.unwrap();
    assert!(same_content(&back, &base));
}

#[tokio::test]
async fn edits_inside_of_holes_keep_the_rest_of_the_hole() {
    let mut old = vec![0; 12 << 20];
    old[..1000].copy_from_slice(&noise(3, 1000));
    check(&old, &[write(4 << 20, 10)]).await;
    check(&old, &[write(4 << 20, 10), write((5 << 20) + 5, 10), write(9 << 20, 2 << 20)]).await;
    check(&old, &[write((11 << 20) + 7, 10), Edit::Resize((11 << 20) + 8), Edit::Resize(14 << 20)]).await;
    check(&old, &[Edit::Resize(6 << 20)]).await;
    // Every byte pattern at the borders of the zero chunks.
    for at in [(5 << 20) - 2, (5 << 20) - 1, 5 << 20] {
        check(&old, &[write(at, 1), write(at + (1 << 20), 1), write(at + (2 << 20) + 1, 1)]).await;
    }
}

#[tokio::test]
async fn an_edit_near_the_end_and_a_cut_behind_it_are_one_change() {
    // The edit's chunks reach the new end, so that the cut behind them must not be looked at again.
    check(&noise(5, 5 << 20), &[write(3 << 20, 2 << 20), Edit::Resize((5 << 20) - 100)]).await;
    check(&noise(5, 5 << 20), &[write((5 << 20) - 300, 250), Edit::Resize((5 << 20) - 100)]).await;
}

#[tokio::test]
async fn contradicting_edits_are_refused() {
    let objects = MemoryObjects::new();
    let mut sink = objects.clone();
    let base = build(&mut sink, None, b"abc").await.unwrap();
    for written in [vec![(1, 1)], vec![(2, 5)], vec![(1, 2), (0, 1)], vec![(0, 1), (1, 2)]] {
        let written = &written.into_iter().map(|(start, end)| start..end).collect::<Vec<_>>();
        let edits = Edits { size: 4, kept: 3, written };
        assert!(recut(&objects, &mut sink, &base, 3, edits, &File(vec![0; 9])).await.is_err(), "{written:?}");
    }
}

fn an_edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => (any::<u32>(), prop_oneof![1_usize..5, 1_usize..3_000_000], any::<u64>(), prop::bool::weighted(0.3))
            .prop_map(|(at, len, seed, zeros)| Edit::Write { at: u64::from(at), len, seed, zeros }),
        1 => (0_u64..24_000_000).prop_map(Edit::Resize),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn recutting_gives_what_cutting_all_gives(
        pieces in prop::collection::vec((prop::bool::weighted(0.3), any::<u64>(), 0_usize..6_000_000), 0..5),
        edits in prop::collection::vec(an_edit(), 1..5),
    ) {
        let mut old = Vec::new();
        for (zeros, seed, len) in pieces {
            if zeros {
                old.resize(old.len() + len, 0);
            } else {
                old.extend_from_slice(&noise(seed, len));
            }
        }
        futures::executor::block_on(check(&old, &edits));
    }

    #[test]
    fn edits_at_borders_are_seen(seed in any::<u64>(), border in any::<prop::sample::Index>(), off in 0_u64..5, cut in any::<bool>()) {
        let old = noise(seed, 6 << 20);
        futures::executor::block_on(async {
            let objects = MemoryObjects::new();
            let base = build(&mut objects.clone(), None, &old).await.unwrap();
            let size = old.len() as u64;
            let parts = list::parts(&objects, &base, size, 0..size).await.unwrap();
            let at = (parts[border.index(parts.len())].offset + off).saturating_sub(2);
            let edit = if cut { Edit::Resize(at.max(2 << 20)) } else { write(at, 1) };
            check(&old, &[edit]).await;
        });
    }
}
