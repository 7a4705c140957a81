use proptest::prelude::*;

use super::*;
use crate::workspace::memory::MemoryObjects;
use crate::workspace::page_codec::same_content;

/// Bytes that don't repeat, from a seed (xorshift64*).
pub(in crate::workspace) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn lens(content: &Content) -> Vec<u64> {
    match content {
        Content::Parts(parts) => parts.iter().map(len_of).collect(),
        _ => panic!("not in parts: {content:?}"),
    }
}

async fn built(objects: &MemoryObjects, bytes: &[u8]) -> Content {
    let mut sink = objects.clone();
    build(&mut sink, None, bytes).await.unwrap()
}

#[tokio::test]
async fn cut_points_are_those_of_the_format() {
    let objects = MemoryObjects::new();
    // A chunker that cuts elsewhere would make every stored large file look changed: these numbers never change.
    let content = built(&objects, &noise(1, 4 << 20)).await;
    assert_eq!(lens(&content), GOLDEN_NOISE);
    let text: Vec<u8> = (0_u32..400_000).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
    assert_eq!(lens(&built(&objects, &text).await), GOLDEN_LINES);
    assert_eq!(zero_cut(), CHUNK_MAX);
}

const GOLDEN_NOISE: [u64; 12] =
    [155_757, 365_609, 404_704, 426_883, 333_975, 309_190, 329_070, 259_324, 501_706, 748_380, 109_742, 249_964];
const GOLDEN_LINES: [u64; 14] =
    [414_230, 724_716, 119_829, 406_142, 265_026, 170_873, 422_187, 218_084, 336_849, 307_718, 399_500, 546_791, 323_177, 33_768];

#[tokio::test]
async fn sizes_decide_the_form() {
    let objects = MemoryObjects::new();
    assert_eq!(built(&objects, b"").await, Content::Inline(Bytes::new()));
    assert_eq!(built(&objects, &[0; 64]).await, Content::Inline(Bytes::from_static(&[0; 64])));
    assert_eq!(built(&objects, &[0; 65]).await, Content::Parts(vec![Part::Hole(65)]));
    assert_eq!(lens(&built(&objects, &noise(2, CHUNK_MAX)).await), [CHUNK_MAX as u64]);
    assert!(lens(&built(&objects, &noise(2, CHUNK_MAX + 1)).await).len() > 1);
    assert!(matches!(built(&objects, &noise(3, 12 << 20)).await, Content::List(_)));
}

#[tokio::test]
async fn a_long_run_of_zeros_is_one_hole_and_costs_nothing() {
    let mut objects = MemoryObjects::new();
    let sink = objects.clone();
    let mut builder = ContentBuilder::new(&mut objects, None);
    builder.zeros(1 << 40).await.unwrap();
    builder.push(b"end").await.unwrap();
    let (content, size) = builder.finish().await.unwrap();
    assert_eq!(size, (1 << 40) + 3);
    assert_eq!(lens(&content).iter().sum::<u64>(), size);
    assert_eq!(lens(&content).len(), 2);
    let tail = read(&sink, &content, size, size - 5..size).await.unwrap();
    assert_eq!(&tail[..], b"\0\0end");
}

#[tokio::test]
async fn lists_read_any_range() {
    let objects = MemoryObjects::new();
    let bytes = noise(4, 30 << 20);
    let content = built(&objects, &bytes).await;
    assert!(matches!(content, Content::List(_)));
    let size = bytes.len() as u64;
    let all = parts(&objects, &content, size, 0..size).await.unwrap();
    assert!(all.len() > 64);
    let mut end = 0;
    for at in &all {
        assert_eq!(at.offset, end);
        end = at.range().end;
    }
    assert_eq!(end, size);
    for (start, len) in [(0, 1), (5 << 20, 3 << 20), (size - 1, 1), (size - 10, 100), (size, 5), (123_456, 1_000_000)] {
        let wanted = &bytes[usize::try_from(start).unwrap()..usize::try_from((start + len).min(size)).unwrap()];
        assert_eq!(read(&objects, &content, size, start..start + len).await.unwrap(), wanted);
    }
}

#[tokio::test]
async fn a_list_that_is_shorter_than_its_file_is_damage() {
    let objects = MemoryObjects::new();
    let content = built(&objects, &noise(4, 12 << 20)).await;
    let error = read(&objects, &content, 13 << 20, (12 << 20) - 5..(12 << 20) + 5).await.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Damaged);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn pieces_and_runs_of_zeros_give_what_the_whole_gives(
        pieces in prop::collection::vec((any::<bool>(), any::<u64>(), 0_usize..1_500_000), 0..8)
    ) {
        futures::executor::block_on(async {
            let objects = MemoryObjects::new();
            let mut sink = objects.clone();
            let mut builder = ContentBuilder::new(&mut sink, None);
            let mut whole = Vec::new();
            for (zeros, seed, len) in pieces {
                if zeros {
                    builder.zeros(len as u64).await.unwrap();
                    whole.resize(whole.len() + len, 0);
                } else {
                    let bytes = noise(seed, len);
                    for piece in bytes.chunks(50_001) {
                        builder.push(piece).await.unwrap();
                    }
                    whole.extend_from_slice(&bytes);
                }
            }
            let (content, size) = builder.finish().await.unwrap();
            assert_eq!(size, whole.len() as u64);
            assert!(same_content(&content, &built(&objects, &whole).await));
            assert_eq!(read(&objects, &content, size, 0..size).await.unwrap(), whole);
        });
    }
}
