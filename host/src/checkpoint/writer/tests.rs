#![expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]

use super::*;
use crate::checkpoint::frame::FRAME_PLAIN_MAX;
use crate::checkpoint::pack::PACK_MAX;
use crate::checkpoint::testing::{files, get_tree, home, noise, put_tree, raw, store, stored, text};
use crate::error::ErrorKind;
use crate::workspace::page::{Entry, Node, Part};

fn file(name: &str, link: ChunkLink, len: u32) -> Entry {
    let content = crate::workspace::page::Content::Parts(vec![Part::Chunk(link, len)]);
    Entry { name: Bytes::copy_from_slice(name.as_bytes()), mode: 0o644, mtime: 0, node: Node::File { size: u64::from(len), content } }
}

#[tokio::test]
async fn a_small_turn_is_one_pack_of_its_content_and_its_pages() {
    let (store, objects) = store();
    let tree = files([("a.txt".into(), text(1, 3000)), ("src/b.txt".into(), text(2, 3000)), ("src/deep/c".into(), text(3, 100))]);
    let (root, written) = stored(&store, &tree).await;
    assert_eq!(written.packs.len(), 1);
    assert_eq!((store.counts().puts, store.counts().requests()), (1, 1));
    let (id, len) = written.packs[0];
    let pack = raw(&objects, id).await;
    assert_eq!((pack.len() as u64, written.bytes), (len, len));
    let frames = pack::check(id, &pack).unwrap();
    // The three small files share a frame; each of the three directories' pages has one.
    assert_eq!(
        frames.iter().map(|f| (f.kind, f.objects.len())).collect::<Vec<_>>(),
        [(FrameKind::Content, 3), (FrameKind::Page, 1), (FrameKind::Page, 1), (FrameKind::Page, 1)]
    );
    assert_eq!(written.objects, 6);
    assert_eq!(get_tree(&Reader::new(store, None, 1 << 20), &root).await.unwrap(), tree);
}

#[tokio::test]
async fn nothing_given_stores_nothing() {
    let (store, _) = store();
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    assert_eq!(writer.finish().await.unwrap(), Written::default());
    assert_eq!(store.counts().requests(), 0);
}

#[tokio::test]
async fn content_is_stored_once_and_known_content_not_at_all() {
    let (store, _) = store();
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let link = writer.chunk(text(1, 5000)).await.unwrap();
    assert_eq!(writer.chunk(text(1, 5000)).await.unwrap(), link);
    assert!(writer.resolve_chunk(&link).is_err(), "it isn't in a sealed pack yet");
    let page = writer.page(Page::Directory(vec![file("a", link.clone(), 5000)])).await.unwrap();
    assert_eq!(writer.page(Page::Directory(vec![file("a", link.clone(), 5000)])).await.unwrap(), page);
    assert_eq!(writer.finish().await.unwrap().objects, 2);

    // A later turn whose base names the chunk.
    let reader = Reader::new(store.clone(), None, 1 << 20);
    let base = reader.view();
    base.page(&writer.resolve(&page).unwrap()).await.unwrap();
    let options = WriterOptions { known: Some(Arc::new(base)), ..WriterOptions::default() };
    let mut next = PackWriter::new(store.clone(), home(), options);
    assert_eq!(next.chunk(text(1, 5000)).await.unwrap(), writer.resolve_chunk(&link).unwrap());
    assert_eq!(next.finish().await.unwrap().packs, []);
    // A view that hasn't read the page knows nothing of it.
    assert_eq!(reader.view().known_chunk(link.id), None);
}

#[tokio::test]
async fn many_bytes_become_packs_of_bounded_size_and_always_as_many() {
    let tree = files(
        (0..120)
            .map(|n| (format!("d{}/f{n:03}", n % 7), noise(n, 300_000 + n as usize)))
            .chain([("big".to_owned(), noise(999, 9 << 20)), ("text".to_owned(), text(5, 3 << 20))]),
    );
    let (first, objects) = store();
    let (root, written) = stored(&first, &tree).await;
    assert!(written.packs.len() >= 3, "{}", written.packs.len());
    for &(id, len) in &written.packs {
        assert!(len as usize <= PACK_MAX);
        pack::check(id, &raw(&objects, id).await).unwrap();
    }
    assert!(written.packs[..written.packs.len() - 1].iter().all(|&(_, len)| len as usize >= PACK_TARGET / 2));
    assert_eq!(get_tree(&Reader::new(first, None, 8 << 20), &root).await.unwrap(), tree);

    let (second, _) = store();
    let (again, same) = stored(&second, &tree).await;
    assert_eq!((again.page.id, same.packs.len(), same.objects), (root.page.id, written.packs.len(), written.objects));
    // The same content, but never a pack of the same name: a collector that deletes the one can't hit the other.
    assert!(same.packs.iter().all(|(id, _)| written.packs.iter().all(|(other, _)| other != id)));
}

#[tokio::test]
async fn pages_alone_rotate_too() {
    let (store, objects) = store();
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let mut links = Vec::new();
    for n in 0..1000_u64 {
        let name = |m: u64| Bytes::from(hex::encode(noise(n * 1000 + m, 100)));
        let mut entries: Vec<_> = (0..15).map(|m| Entry { name: name(m), mode: 0, mtime: 0, node: Node::Linked(m) }).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        links.push(writer.page(Page::Directory(entries)).await.unwrap());
    }
    let written = writer.finish().await.unwrap();
    assert!(written.packs.len() > 1);
    assert_eq!(written.objects, 1000);
    for &(id, _) in &written.packs {
        pack::check(id, &raw(&objects, id).await).unwrap();
    }
    let links: Vec<_> = links.iter().map(|link| writer.resolve(link).unwrap()).collect();
    assert_eq!(Reader::new(store, None, 1 << 20).pages(&links).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn impossible_objects_are_refused() {
    let (store, _) = store();
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    assert!(writer.chunk(Bytes::new()).await.is_err());
    assert!(writer.chunk(vec![0; FRAME_PLAIN_MAX + 1].into()).await.is_err());
    writer.chunk(text(1, 100)).await.unwrap();
    // A page that names a chunk nobody gave.
    let stranger = Link { id: ChunkId::of(b"stranger"), place: Place::Fresh };
    writer.page(Page::Directory(vec![file("a", stranger, 100)])).await.unwrap();
    assert_eq!(writer.finish().await.unwrap_err().kind(), ErrorKind::Internal);
    assert!(writer.chunk(text(2, 100)).await.is_err(), "a failed writer takes nothing more");
    assert_eq!(store.counts().puts, 0);
}

#[tokio::test]
async fn a_failed_upload_fails_the_writer_and_not_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().join("s").display());
    let clock: crate::clock::SharedClock = Arc::new(crate::clock::SystemClock);
    let failing = Store::open(&url, &crate::store::Options::default(), clock, Arc::new(crate::random::SystemRandom)).await.unwrap();
    // A file where the folder of the sessions would be.
    std::fs::write(dir.path().join("s/sessions"), b"").unwrap();
    let mut writer = PackWriter::new(failing, home(), WriterOptions::default());
    let mut failed = None;
    for n in 0..200 {
        if let Err(error) = writer.chunk(noise(n, 1 << 20)).await {
            failed = Some(error);
            break;
        }
    }
    let error = match failed {
        Some(error) => error,
        None => writer.finish().await.unwrap_err(),
    };
    assert!(error.message().contains("storing pack"), "{error:?}");
    assert!(writer.finish().await.is_err());
}

#[tokio::test]
async fn what_was_written_is_read_without_a_request() {
    let (store, _) = store();
    let reader = Reader::new(store.clone(), None, 8 << 20);
    let options = WriterOptions { reader: Some(reader.clone()), ..WriterOptions::default() };
    let mut writer = PackWriter::new(store.clone(), home(), options);
    let tree = files((0..20).map(|n| (format!("d{}/f{n}", n % 3), text(n, 4000))));
    let root = put_tree(&mut writer, &tree).await.unwrap();
    writer.finish().await.unwrap();
    let root = writer.resolve_root(&root).unwrap();
    assert_eq!(get_tree(&reader, &root).await.unwrap(), tree);
    assert_eq!(store.counts().gets, 0);
}

#[tokio::test]
async fn its_futures_can_be_spawned() {
    let (store, _) = store();
    let reader = Reader::new(store.clone(), None, 1 << 20);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let work = async move {
        let mut writer = PackWriter::new(store, home(), WriterOptions::default());
        let page = writer.page(Page::Directory(Vec::new())).await?;
        writer.chunk(text(1, 10)).await?;
        writer.finish().await?;
        let root = Root { page: writer.resolve(&page)?, links: None, entries: 0, bytes: 0 };
        reader.pages(std::slice::from_ref(&root.page)).await?;
        crate::checkpoint::materialise::materialise(&reader, &root, &target, &Default::default()).await
    };
    tokio::spawn(work).await.unwrap().unwrap();
}
