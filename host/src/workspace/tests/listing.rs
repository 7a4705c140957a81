use super::*;

/// Lists `names` while `change` is called before each step, and returns what was shown.
async fn listed_while(fs: &Filesystem, mut change: impl AsyncFnMut(usize)) -> Vec<String> {
    let mut stream = fs.root().read_directory().unwrap();
    let mut shown = Vec::new();
    loop {
        change(shown.len()).await;
        let Some(entry) = stream.next().await.unwrap() else { return shown };
        shown.push(String::from_utf8(entry.name.to_vec()).unwrap());
    }
}

async fn many(ground: &Ground, count: usize) -> Filesystem {
    let fs = ground.empty();
    for number in 0..count {
        write(&fs, &format!("{number:05}"), b"x").await;
    }
    fs
}

#[tokio::test]
async fn untouched_names_are_shown_once_while_others_change() {
    let ground = Ground::new();
    // The last one is split into several pages.
    for (count, reopened) in [(20, false), (20, true), (1_000, true)] {
        let mut fs = many(&ground, count).await;
        if reopened {
            fs = ground.reopen(&fs).await;
        }
        let shown = listed_while(&fs, async |step| {
            if step < 10 {
                // Odd ones go, as a recursive removal does; others come, before and behind the place of the reader.
                let _ = fs.root().unlink_file_at(format!("{:05}", step * 2 + 1).as_bytes()).await;
                write(&fs, &format!("0000{step}.new"), b"").await;
                write(&fs, &format!("9{step}"), b"").await;
            }
            if step == 5 {
                let root = ground.capture(&fs).await;
                fs.rebase(&root).await.unwrap();
            }
        })
        .await;
        let mut sorted = shown.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(shown, sorted, "in order, and none twice");
        for number in (0..count).filter(|number| number % 2 == 0 || *number > 20) {
            assert!(shown.contains(&format!("{number:05}")), "{number} of {count} is missing");
        }
    }
}

#[tokio::test]
async fn a_large_directory_is_listed_from_its_pages() {
    let ground = Ground::new();
    let fs = ground.reopen(&many(&ground, 3_000).await).await;
    fs.root().unlink_file_at(b"00007").await.unwrap();
    write(&fs, "00003", b"changed").await;
    write(&fs, "zzz", b"new").await;
    let names = names(&fs, ".").await;
    assert_eq!(names.len(), 3_000);
    assert_eq!(names.first().map(String::as_str), Some("00000"));
    assert_eq!(names.last().map(String::as_str), Some("zzz"));
    assert!(!names.contains(&"00007".to_owned()));
    assert_eq!(ground.reopen(&fs).await.usage().entries, 3_000);
}
