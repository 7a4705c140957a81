use std::io::Write as _;
use std::sync::Arc;

use super::*;
use crate::checkpoint::export;
use crate::checkpoint::inspect::OpenCheckpoint;
use crate::checkpoint::materialise::materialise;
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::testing::{home, noise, store};
use crate::checkpoint::verify::{Depth, verify};
use crate::checkpoint::writer::WriterOptions;
use crate::store::Store;
use crate::workspace::source::Sink as _;

async fn imported(store: &Store, from: From, options: &ImportOptions) -> Result<(Checkpoint, Imported)> {
    let reader = Reader::new(store.clone(), None, 8 << 20);
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let (root, done) = import(&reader, &mut writer, from, options).await?;
    let empty = writer.page(crate::workspace::page::Page::Directory(Vec::new())).await?;
    writer.finish().await?;
    let state = Root { page: writer.resolve(&empty)?, links: None, entries: 0, bytes: 0 };
    Ok((Checkpoint::new(RootRecord { workspace: writer.resolve_root(&root)?, state, git: None, pin: None }), done))
}

async fn exported(store: &Store, checkpoint: &Checkpoint) -> Vec<u8> {
    let open = OpenCheckpoint::new(checkpoint.clone(), Arc::new(Reader::new(store.clone(), None, 8 << 20)));
    let mut bytes = Vec::new();
    let done = export::export(&open, "/workspace", &mut bytes).await.unwrap();
    assert_eq!((done.archive, done.entries), (bytes.len() as u64, checkpoint.root.workspace.entries));
    bytes
}

fn archive(bytes: impl Into<Vec<u8>>) -> From {
    From::Archive(Box::new(std::io::Cursor::new(bytes.into())))
}

/// A folder with something of every kind.
fn zoo() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("a/very/deep/place")).unwrap();
    std::fs::write(at("a/very/deep/place/file"), b"deep").unwrap();
    std::fs::write(at("empty"), b"").unwrap();
    std::fs::write(at("big"), noise(1, 3 << 20)).unwrap();
    std::fs::write(at("zeros"), vec![0; 5 << 20]).unwrap();
    std::fs::write(at("größe \\ \n\u{1f600}"), b"odd").unwrap();
    std::fs::write(at("x".repeat(200).as_str()), b"long name").unwrap();
    std::fs::create_dir_all(at(&"d".repeat(150)).join("e".repeat(150))).unwrap();
    std::fs::write(at(&"d".repeat(150)).join("e".repeat(150)).join("f"), b"long path").unwrap();
    std::os::unix::fs::symlink("deep/place", at("a/very/link")).unwrap();
    std::os::unix::fs::symlink("very/../very/deep", at("a/up")).unwrap();
    std::fs::hard_link(at("big"), at("a/same")).unwrap();
    std::fs::hard_link(at("big"), at("z")).unwrap();
    std::fs::create_dir(at("nothing in it")).unwrap();
    std::fs::create_dir_all(at("sub/.git/objects")).unwrap();
    dir
}

#[tokio::test]
async fn a_folder_goes_in_and_out_as_an_archive_and_comes_to_the_same_checkpoint() {
    let (store, _) = store();
    let dir = zoo();
    let (checkpoint, done) = imported(&store, From::Folder(dir.path().to_owned()), &ImportOptions::default()).await.unwrap();
    assert_eq!(done.skipped, 1, "the .git folder");
    assert_eq!(done.entries, checkpoint.root.workspace.entries);
    assert!(verify(&store, &checkpoint, Depth::Deep).await.unwrap().is_ok());
    let bytes = exported(&store, &checkpoint).await;
    let (again, _) = imported(&store, archive(bytes.clone()), &ImportOptions::default()).await.unwrap();
    assert_eq!(again.id, checkpoint.id);
    assert_eq!(exported(&store, &again).await, bytes, "the same checkpoint, the same bytes");
    // Also compressed.
    let zst = zstd::encode_all(&bytes[..], 3).unwrap();
    assert_eq!(imported(&store, archive(zst), &ImportOptions::default()).await.unwrap().0.id, checkpoint.id);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&bytes).unwrap();
    assert_eq!(imported(&store, archive(gz.finish().unwrap()), &ImportOptions::default()).await.unwrap().0.id, checkpoint.id);
}

#[tokio::test]
async fn other_tools_read_an_export_and_what_they_write_is_taken() {
    let (store, _) = store();
    let dir = zoo();
    let (checkpoint, _) = imported(&store, From::Folder(dir.path().to_owned()), &ImportOptions::default()).await.unwrap();
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("a.tar"), exported(&store, &checkpoint).await).unwrap();
    let run = |program: &str, args: &[&str]| {
        let done = std::process::Command::new(program).args(args).current_dir(out.path()).output().unwrap();
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    };
    std::fs::create_dir(out.path().join("tree")).unwrap();
    run("tar", &["-x", "-f", "a.tar", "-C", "tree", "--numeric-owner"]);
    let reader = Reader::new(store.clone(), None, 8 << 20);
    materialise(&reader, &checkpoint.root.workspace, &out.path().join("ours"), &Default::default()).await.unwrap();
    run("diff", &["-r", "--no-dereference", "tree", "ours"]);
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(out.path().join("tree").join(path)).unwrap());
    assert_eq!(inode("big"), inode("z"), "hard links stay hard links");
    // Both forms that GNU tar writes, and the folder itself as `.`.
    for format in ["--format=pax", "--format=gnu"] {
        run("tar", &["-c", "-f", "b.tar", format, "-C", "tree", "."]);
        let bytes = std::fs::read(out.path().join("b.tar")).unwrap();
        let (again, _) = imported(&store, archive(bytes), &ImportOptions::default()).await.unwrap();
        let whole = format == "--format=pax";
        assert_eq!(again.root.workspace.entries, checkpoint.root.workspace.entries);
        assert!(!whole || again.id == checkpoint.id, "times have nanoseconds in this form");
    }
}

/// Path, kind, link target, content.
type Made<'a> = (&'a [u8], tar::EntryType, &'a [u8], &'a [u8]);

/// An archive by hand.
fn made(entries: &[Made<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, kind, target, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target);
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        header.set_cksum();
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

#[tokio::test]
async fn hostile_archives_are_refused_and_say_why() {
    use tar::EntryType as T;
    let (store, _) = store();
    let file = |path: &'static [u8]| (path, T::Regular, &b""[..], &b"x"[..]);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("absolute", made(&[file(b"/etc/passwd")]), "hostile_archive"),
        ("up", made(&[file(b"a/../../b")]), "hostile_archive"),
        ("up at the end", made(&[(b"a/..", T::Directory, b"", b"")]), "hostile_archive"),
        ("twice", made(&[file(b"a"), file(b"a")]), "hostile_archive"),
        ("twice in disguise", made(&[file(b"a"), file(b"./a")]), "hostile_archive"),
        ("directory twice", made(&[(b"a/", T::Directory, b"", b""), (b"./a", T::Directory, b"", b"")]), "hostile_archive"),
        ("file over directory", made(&[(b"a/", T::Directory, b"", b""), file(b"a")]), "hostile_archive"),
        ("directory over file", made(&[file(b"a"), (b"a/", T::Directory, b"", b"")]), "hostile_archive"),
        ("below a file", made(&[file(b"a"), file(b"a/b")]), "hostile_archive"),
        ("through a link", made(&[(b"a", T::Symlink, b"b", b""), file(b"a/b")]), "hostile_archive"),
        ("link out, absolute", made(&[(b"a", T::Symlink, b"/etc", b"")]), "unsafe_link"),
        ("link out, up", made(&[(b"d/a", T::Symlink, b"../../x", b"")]), "unsafe_link"),
        (
            "link out through a link",
            made(&[(b"d/e/l", T::Symlink, b".", b""), (b"d/a", T::Symlink, b"e/l/../../../x", b"")]),
            "unsafe_link",
        ),
        ("link of nothing", made(&[(b"a", T::Symlink, b"", b"")]), "hostile_archive"),
        ("hard link out", made(&[(b"a", T::Link, b"/etc/passwd", b"")]), "hostile_archive"),
        ("hard link up", made(&[(b"a", T::Link, b"../a", b"")]), "hostile_archive"),
        ("hard link to what comes later", made(&[(b"a", T::Link, b"b", b""), file(b"b")]), "hostile_archive"),
        ("hard link to a directory", made(&[(b"d/", T::Directory, b"", b""), (b"a", T::Link, b"d", b"")]), "hostile_archive"),
        ("hard link to a link", made(&[(b"l", T::Symlink, b"x", b""), (b"a", T::Link, b"l", b"")]), "hostile_archive"),
        ("hard link to itself", made(&[(b"a", T::Link, b"a", b"")]), "hostile_archive"),
        ("device", made(&[(b"a", T::Char, b"", b"")]), "special_file"),
        ("block device", made(&[(b"a", T::Block, b"", b"")]), "special_file"),
        ("pipe", made(&[(b"a", T::Fifo, b"", b"")]), "special_file"),
        ("git folder", made(&[file(b"a/.GIT/config")]), "hostile_archive"),
        ("git folder of another system", made(&[file(b"git~1/config")]), "hostile_archive"),
        ("the top as a file", made(&[file(b"./")]), "hostile_archive"),
        ("not an archive", vec![b'x'; 4096], "hostile_archive"),
        ("nothing", Vec::new(), "usage"),
    ];
    for (what, bytes, code) in cases {
        let result = imported(&store, archive(bytes), &ImportOptions::default()).await;
        assert_eq!(result.map(|_| ()).unwrap_err().stable_code(), code, "{what}");
    }
    // A link out is taken as it is where the caller says so; it is still not followed.
    let link = made(&[(b"a", T::Symlink, b"/etc", b"")]);
    let options = ImportOptions { unsafe_links: true, ..ImportOptions::default() };
    assert!(imported(&store, archive(link), &options).await.is_ok());
    let through = made(&[(b"a", T::Symlink, b"/etc", b""), file(b"a/passwd")]);
    assert_eq!(imported(&store, archive(through), &options).await.unwrap_err().stable_code(), "hostile_archive");
}

#[tokio::test]
async fn a_cut_off_archive_is_refused_wherever_it_ends() {
    let (store, _) = store();
    let whole = made(&[(b"a", tar::EntryType::Regular, b"", &[7; 2000]), (b"b", tar::EntryType::Regular, b"", b"end")]);
    for len in [1, 511, 513, 512 + 1999, 512 + 2048 + 100] {
        let error = imported(&store, archive(&whole[..len]), &ImportOptions::default()).await.unwrap_err();
        assert_eq!(error.stable_code(), "hostile_archive", "{len}: {error:?}");
    }
}

#[tokio::test]
async fn bombs_end_at_the_limits() {
    let (store, _) = store();
    let limits = |change: fn(&mut Limits)| {
        let mut options = ImportOptions::default();
        change(&mut options.limits);
        options
    };
    let zeros = vec![0; 1 << 20];
    let many: Vec<String> = (0..50).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_bytes(), tar::EntryType::Regular, &b""[..], &zeros[..])).collect();
    let bytes = made(&many);
    for options in [limits(|l| l.entries = 10), limits(|l| l.bytes = 10 << 20), limits(|l| l.file = 1000), limits(|l| l.name = 1)] {
        let bomb = zstd::encode_all(&bytes[..], 3).unwrap();
        let error = imported(&store, archive(bomb), &options).await.unwrap_err();
        assert_eq!(error.stable_code(), "import_too_large", "{error:?}");
    }
    let deep = "d/".repeat(45);
    let deep = made(&[(deep.as_bytes(), tar::EntryType::Directory, b"", b"")]);
    assert_eq!(imported(&store, archive(deep), &limits(|l| l.depth = 40)).await.unwrap_err().stable_code(), "import_too_large");
    // A header that says it has 8 GiB of extensions, compressed to nothing: reading stops at the budget of headers.
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..1].copy_from_slice(b"x");
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size((8 << 30) - 1);
    header.set_cksum();
    let start = header.as_bytes().to_vec();
    let endless = std::io::Cursor::new(start).chain(std::io::repeat(b' '));
    let error = imported(&store, From::Archive(Box::new(endless)), &ImportOptions::default()).await.unwrap_err();
    assert_eq!(error.stable_code(), "hostile_archive", "{error:?}");
    // A file that says it is larger than what may be.
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    let endless = std::io::Cursor::new(header.as_bytes().to_vec()).chain(std::io::repeat(b' '));
    let error = imported(&store, From::Archive(Box::new(endless)), &ImportOptions::default()).await.unwrap_err();
    assert_eq!(error.stable_code(), "import_too_large", "{error:?}");
}

#[tokio::test]
async fn special_files_of_a_folder_are_refused() {
    let (store, _) = store();
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let error = imported(&store, From::Folder(dir.path().to_owned()), &ImportOptions::default()).await.unwrap_err();
    assert_eq!(error.stable_code(), "special_file");
    let error = imported(&store, From::Folder(dir.path().join("none")), &ImportOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Local);
    // A link to a folder outside isn't walked into.
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/usr", dir.path().join("l")).unwrap();
    let error = imported(&store, From::Folder(dir.path().to_owned()), &ImportOptions::default()).await.unwrap_err();
    assert_eq!(error.stable_code(), "unsafe_link");
}

mod any_bytes {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A good archive with some bytes changed or cut off: refused, or taken as a tree that verifies. Never a panic, never a hang.
        #[test]
        fn changed_archives_are_refused_or_sound(changes in prop::collection::vec((0_usize..8192, any::<u8>()), 0..12), len in 0_usize..8192, sum in any::<bool>()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut bytes = made(&[
                    (b"a/", tar::EntryType::Directory, b"", b""),
                    (b"a/b", tar::EntryType::Regular, b"", &[5; 700]),
                    (b"c", tar::EntryType::Link, b"a/b", b""),
                    (b"d", tar::EntryType::Symlink, b"a", b""),
                ]);
                for (at, byte) in changes {
                    if let Some(place) = bytes.get_mut(at) {
                        *place = byte;
                    }
                }
                // With right sums more of the changes are believed.
                if sum {
                    for block in bytes.chunks_exact_mut(512) {
                        if &block[257..262] == b"ustar" {
                            let mut header = tar::Header::new_ustar();
                            header.as_mut_bytes().copy_from_slice(block);
                            header.set_cksum();
                            block.copy_from_slice(header.as_bytes());
                        }
                    }
                }
                bytes.truncate(len.max(bytes.len() / 2));
                let (store, _) = store();
                if let Ok((checkpoint, _)) = imported(&store, archive(bytes), &ImportOptions::default()).await {
                    assert!(verify(&store, &checkpoint, Depth::Deep).await.unwrap().is_ok());
                }
            });
        }
    }
}
