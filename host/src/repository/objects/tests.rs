use super::*;

fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn a_tree_is_sorted_as_git_sorts_it() {
    // `a.txt` comes before the directory `a`, which counts as `a/`.
    let file = |byte| TreeEntry::Leaf(GitMode::File, [byte; 20]);
    let entries =
        TreeEntries::from([(name("a"), TreeEntry::Tree([1; 20])), (name("a.txt"), file(2)), (name("a0"), file(3)), (name("b"), file(4))]);
    let bytes = write_tree(&entries);
    let order: Vec<_> = TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1).map(|entry| entry.unwrap().filename.to_string()).collect();
    assert_eq!(order, ["a.txt", "a", "a0", "b"]);
    assert_eq!(parse_tree(&bytes).unwrap(), entries);
}

#[test]
fn ids_are_gits() {
    assert_eq!(hex::encode(object_id(ObjectKind::Tree, b"").unwrap()), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    assert_eq!(hex::encode(object_id(ObjectKind::Blob, b"hello\n").unwrap()), "ce013625030ba8dba906f756967f9e9ca394464a");
}

#[test]
fn what_is_no_tree_is_damage() {
    for bytes in [&b"100644 a"[..], b"100644 a\0short", b"nonsense"] {
        assert_eq!(parse_tree(bytes).unwrap_err().stable_code(), "import_damaged", "{bytes:?}");
    }
}
