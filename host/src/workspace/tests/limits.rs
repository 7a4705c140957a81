use super::super::{Follow, NewTime};
use super::*;

fn small() -> Limits {
    Limits { entries: 4, bytes: 100, file: 60, name: 8, path: 40, depth: 3, target: 5 }
}

#[tokio::test]
async fn entries_are_counted_exactly() {
    let ground = Ground::new();
    let fs = ground.open(small(), None);
    let root = fs.root();
    mkdir(&fs, "a").await;
    write(&fs, "a/b", b"").await;
    root.symlink_at(b"b", b"a/c").await.unwrap();
    root.link_at(b"a/b", Follow::No, &root, b"d").await.unwrap();
    assert_eq!(fs.usage().entries, 4);
    for fs in [fs.clone(), ground.reopen(&fs).await] {
        let root = fs.root();
        assert_eq!(code(open(&fs, "e", CREATE).await), "InsufficientSpace");
        assert_eq!(code(root.create_directory_at(b"e").await), "InsufficientSpace");
        assert_eq!(code(root.symlink_at(b"e", b"e").await), "InsufficientSpace");
        assert_eq!(code(root.link_at(b"d", Follow::No, &root, b"e").await), "InsufficientSpace");
        root.rename_at(b"d", &root, b"e").await.unwrap();
        root.rename_at(b"e", &root, b"a/c").await.unwrap();
        assert_eq!(fs.usage().entries, 3);
        open(&fs, "e", CREATE).await.unwrap();
        assert_eq!(code(open(&fs, "f", CREATE).await), "InsufficientSpace");
    }
}

#[tokio::test]
async fn bytes_are_counted_exactly() {
    let ground = Ground::new();
    let fs = ground.open(small(), None);
    write(&fs, "a", &[1; 60]).await;
    write(&fs, "b", &[1; 30]).await;
    for fs in [fs.clone(), ground.reopen(&fs).await] {
        let (a, b) = (open(&fs, "a", READ).await.unwrap(), open(&fs, "b", READ).await.unwrap());
        assert_eq!(code(a.write_at(60, b"x")), "FileTooLarge");
        assert_eq!(code(a.set_size(61)), "FileTooLarge");
        assert_eq!(code(a.write_at(u64::MAX, b"xx")), "FileTooLarge");
        assert_eq!(code(b.write_at(30, &[2; 11])), "InsufficientSpace");
        assert_eq!(b.stat().unwrap().size, 30, "nothing is written when not all is");
        b.write_at(30, &[2; 10]).unwrap();
        a.write_at(0, &[3; 60]).unwrap();
        assert_eq!(fs.usage().bytes, 100);
        assert_eq!(code(b.append(b"x")), "InsufficientSpace");
        // An unlinked file counts until it is closed.
        fs.root().unlink_file_at(b"a").await.unwrap();
        assert_eq!((fs.usage().bytes, fs.usage().unlinked), (40, 60));
        assert_eq!(code(b.append(b"x")), "InsufficientSpace");
        a.set_size(50).unwrap();
        b.set_size(50).unwrap();
        drop(a);
        b.set_size(60).unwrap();
        assert_eq!((fs.usage().bytes, fs.usage().unlinked), (60, 0));
        assert_eq!(ground.reopen(&fs).await.usage(), fs.usage());
    }
}

#[tokio::test]
async fn names_paths_targets_and_depth_are_bounded() {
    let ground = Ground::new();
    let fs = ground.open(Limits { entries: 100, ..small() }, None);
    let root = fs.root();
    for directory in ["a", "a/b", "x", "x/y", "x/y/z"] {
        mkdir(&fs, directory).await;
    }
    assert_eq!(code(open(&fs, "123456789", CREATE).await), "NameTooLong");
    assert_eq!(code(open(&fs, "12345678", CREATE).await), "ok");
    assert_eq!(code(root.stat_at(&[b'a'; 41], Follow::No).await), "NameTooLong");
    assert_eq!(code(root.symlink_at(b"123456", b"l").await), "NameTooLong");
    assert_eq!(code(root.symlink_at(b"12345", b"l").await), "ok");
    assert_eq!(code(open(&fs, "x/y/z/f", CREATE).await), "NameTooLong");
    assert_eq!(code(open(&fs, "a/b/f", CREATE).await), "ok");
    // A directory takes what is below it along.
    for fs in [ground.reopen(&fs).await, fs.clone()] {
        let root = fs.root();
        assert_eq!(code(root.rename_at(b"x", &root, b"a/x").await), "NameTooLong");
        assert_eq!(code(root.rename_at(b"x/y", &root, b"a/y").await), "ok");
        assert_eq!(code(root.rename_at(b"x", &root, b"a/x").await), "ok");
        assert_eq!(code(root.rename_at(b"a/y/z", &root, b"z").await), "ok");
    }
}

#[tokio::test]
async fn a_lowered_limit_refuses_growth_only() {
    let ground = Ground::new();
    let fs = ground.empty();
    write(&fs, "a", &[1; 500]).await;
    write(&fs, "b", &[1; 50]).await;
    let root = ground.capture(&fs).await;
    let fs = ground.open(small(), Some(root));
    let a = open(&fs, "a", READ).await.unwrap();
    a.write_at(10, b"same size").unwrap();
    a.set_size(400).unwrap();
    a.set_times(NewTime::Now).unwrap();
    assert_eq!(code(a.append(b"x")), "FileTooLarge");
    assert_eq!(code(open(&fs, "b", READ).await.unwrap().append(b"x")), "InsufficientSpace");
    fs.root().unlink_file_at(b"a").await.unwrap();
}

#[tokio::test]
async fn data_above_the_budget_goes_to_a_file_without_a_name() {
    let ground = Ground::with_memory(10_000);
    let fs = ground.empty();
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let file = open(&fs, "big", CREATE).await.unwrap();
    for piece in data.chunks(1_000) {
        file.append(piece).unwrap();
    }
    let (memory, disk) = ground.spool.used();
    assert!(memory <= 10_000, "{memory}");
    assert!((290_000..1_000_000).contains(&disk), "{disk}");
    assert!(!ground.spool_is_named());
    file.write_at(5_000, b"over both").unwrap();
    let mut expected = data;
    expected[5_000..5_009].copy_from_slice(b"over both");
    assert_eq!(read_all(&file).await, expected);
    file.set_size(123_456).unwrap();
    file.set_size(200_000).unwrap();
    expected.truncate(123_456);
    expected.resize(200_000, 0);
    assert_eq!(read_all(&file).await, expected);
    let root = ground.capture(&fs).await;
    fs.rebase(&root).await.unwrap();
    assert_eq!(ground.spool.used(), (0, 0), "a captured edit needs no room");
    assert_eq!(read_all(&file).await, expected);
    fs.root().unlink_file_at(b"big").await.unwrap();
    drop(file);
    // The disk's budget is a limit too.
    let file = open(&fs, "huge", CREATE).await.unwrap();
    let piece = vec![7; 1 << 20];
    let written = (0..100).take_while(|_| file.append(&piece).is_ok()).count();
    assert!((60..=64).contains(&written), "{written}");
    assert_eq!(code(file.append(&piece)), "InsufficientSpace");
    assert_eq!(file.stat().unwrap().size, (written as u64) << 20);
    drop(file);
    drop(fs);
    assert_eq!(ground.spool.used(), (0, 0));
}

#[tokio::test]
async fn memory_of_names_and_attributes_is_bounded_and_given_back() {
    let ground = Ground::with_tables(20_000);
    let fs = ground.empty();
    let root = fs.root();
    let mut made = 0;
    while root.symlink_at(&[b'x'; 1_000], format!("link{made}").as_bytes()).await.is_ok() {
        made += 1;
        assert!(made < 100, "targets count");
    }
    assert!(made > 5);
    for full in [root.create_directory_at(b"d").await, root.symlink_at(b"x", b"s").await, root.rename_at(b"link0", &root, b"other").await] {
        assert_eq!(code(full), "InsufficientSpace");
    }
    assert_eq!(code(open(&fs, "f", CREATE).await), "InsufficientSpace");
    root.unlink_file_at(b"link0").await.unwrap();
    root.create_directory_at(b"d").await.unwrap();

    // What is stored can't be removed without a note either, and a new turn begins with all of its budget.
    let again = ground.reopen(&fs).await;
    drop((root, fs));
    let root = again.root();
    root.unlink_file_at(b"link1").await.unwrap();
    drop((root, again));
    assert_eq!(ground.spool.in_tables(), 0);
}

#[tokio::test]
async fn renames_removals_and_saves_keep_the_account_of_memory_right() {
    let ground = Ground::new();
    let fs = ground.empty();
    let empty = ground.spool.in_tables();
    for directory in ["a", "a/b", "c"] {
        mkdir(&fs, directory).await;
    }
    write(&fs, "a/b/f", b"1").await;
    let root = fs.root();
    root.rename_at(b"a/b", &root, b"c/b").await.unwrap();
    root.link_at(b"c/b/f", Follow::No, &root, b"g").await.unwrap();
    let captured = ground.capture(&fs).await;
    fs.rebase(&captured).await.unwrap();
    for file in ["c/b/f", "g"] {
        root.unlink_file_at(file.as_bytes()).await.unwrap();
    }
    for directory in ["c/b", "c", "a"] {
        root.remove_directory_at(directory.as_bytes()).await.unwrap();
    }
    let captured = ground.capture(&fs).await;
    fs.rebase(&captured).await.unwrap();
    assert_eq!(ground.spool.in_tables(), empty, "only the top directory is left");
}
