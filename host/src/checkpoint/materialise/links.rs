//! Where a symbolic link leads, judged without following it.

use bytes::Bytes;

/// Whether a link stays in the folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::checkpoint) enum Leads {
    /// It stays inside, whatever other links there are, as long as each of those does.
    Inside,
    /// It leads out.
    Outside,
    /// It goes up from a name: inside only if all names before are real directories.
    Depends,
}

/// Judges the target of a link in a directory of this depth (0 is the top).
pub(in crate::checkpoint) fn judge(target: &[u8], depth: usize) -> Leads {
    if target.starts_with(b"/") {
        return Leads::Outside;
    }
    let (mut level, mut named, mut depends) = (depth, false, false);
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                depends |= named;
                match level.checked_sub(1) {
                    Some(up) => level = up,
                    None => return Leads::Outside,
                }
            }
            _ => {
                level += 1;
                named = true;
            }
        }
    }
    if depends { Leads::Depends } else { Leads::Inside }
}

/// Returns, for a target that goes up from names, the directories that must be real, as paths from the top.
pub(in crate::checkpoint) fn directories_needed(target: &[u8], directory: &[Bytes]) -> Vec<Vec<Bytes>> {
    let mut path = directory.to_vec();
    let mut needed = Vec::new();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                needed.push(path.clone());
                path.pop();
            }
            name => path.push(Bytes::copy_from_slice(name)),
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_judged_by_their_text() {
        for (target, depth, leads) in [
            ("a", 0, Leads::Inside),
            ("./a//b", 0, Leads::Inside),
            ("../a", 1, Leads::Inside),
            ("../../a", 2, Leads::Inside),
            ("..", 1, Leads::Inside),
            ("/etc/passwd", 5, Leads::Outside),
            ("..", 0, Leads::Outside),
            ("../../a", 1, Leads::Outside),
            ("a/../../b", 0, Leads::Outside),
            ("a/../b", 0, Leads::Depends),
            ("../a/../b", 1, Leads::Depends),
            ("here/../x", 3, Leads::Depends),
        ] {
            assert_eq!(judge(target.as_bytes(), depth), leads, "{target}");
        }
        let path = |text: &str| text.split('/').map(|part| Bytes::copy_from_slice(part.as_bytes())).collect::<Vec<_>>();
        assert_eq!(directories_needed(b"a/b/../../c", &path("d")), [path("d/a/b"), path("d/a")]);
    }
}
