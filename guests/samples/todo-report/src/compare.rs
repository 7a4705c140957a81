//! Compares two lists of findings.

use std::collections::{BTreeMap, VecDeque};

use crate::find::Todo;

/// What changed from one list to the next. A marker is the same one when marker and text are; it moved when its place changed.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Changes {
    /// Only in the second list.
    pub(crate) new: Vec<Todo>,
    /// Only in the first list.
    pub(crate) gone: Vec<Todo>,
    /// In both, at another line or in another file: from, to.
    pub(crate) moved: Vec<(Todo, Todo)>,
}

impl Changes {
    /// Compares two sorted lists. Equal texts are paired where they stayed first, then within a file, then over all files, in order.
    pub(crate) fn between(before: &[Todo], after: &[Todo]) -> Self {
        let (before, after, _) = pair(before.to_vec(), after.to_vec(), |todo| (text(todo), Some(todo.path.clone()), Some(todo.line)));
        let (before, after, within) = pair(before, after, |todo| (text(todo), Some(todo.path.clone()), None::<u64>));
        let (gone, new, across) = pair(before, after, |todo| (text(todo), None::<String>, None::<u64>));
        let mut moved = [within, across].concat();
        moved.sort_by(|a, b| a.1.cmp(&b.1));
        Self { new, gone, moved }
    }

    /// Returns whether nothing changed.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn text(todo: &Todo) -> (String, Option<String>, String) {
    (todo.marker.clone(), todo.owner.clone(), todo.text.clone())
}

/// Pairs entries with equal keys, first with first. Returns what is left of each side, and the pairs.
fn pair<K: Ord>(before: Vec<Todo>, after: Vec<Todo>, key: impl Fn(&Todo) -> K) -> (Vec<Todo>, Vec<Todo>, Vec<(Todo, Todo)>) {
    let mut waiting: BTreeMap<K, VecDeque<Todo>> = BTreeMap::new();
    for todo in before {
        waiting.entry(key(&todo)).or_default().push_back(todo);
    }
    let (mut new, mut pairs) = (Vec::new(), Vec::new());
    for todo in after {
        match waiting.get_mut(&key(&todo)).and_then(VecDeque::pop_front) {
            Some(old) => pairs.push((old, todo)),
            None => new.push(todo),
        }
    }
    let mut gone: Vec<Todo> = waiting.into_values().flatten().collect();
    gone.sort();
    (gone, new, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn todo(path: &str, line: u64, text: &str) -> Todo {
        Todo { path: path.into(), line, marker: "TODO".into(), owner: None, text: text.into() }
    }

    #[test]
    fn tells_new_gone_and_moved_apart() {
        let before = [todo("a", 1, "stay"), todo("a", 2, "shift"), todo("a", 3, "leave"), todo("b", 1, "travel")];
        let after = [todo("a", 1, "stay"), todo("a", 9, "shift"), todo("c", 4, "travel"), todo("d", 1, "come")];
        assert_eq!(
            Changes::between(&before, &after),
            Changes {
                new: vec![todo("d", 1, "come")],
                gone: vec![todo("a", 3, "leave")],
                moved: vec![(todo("a", 2, "shift"), todo("a", 9, "shift")), (todo("b", 1, "travel"), todo("c", 4, "travel"))],
            }
        );
        assert!(Changes::between(&after, &after).is_empty());
    }

    #[test]
    fn pairs_equal_texts_where_they_stayed_first() {
        let before = [todo("a", 1, "same"), todo("a", 5, "same")];
        let after = [todo("a", 5, "same"), todo("a", 8, "same")];
        let changes = Changes::between(&before, &after);
        assert_eq!(changes.moved, [(todo("a", 1, "same"), todo("a", 8, "same"))]);
        assert!(changes.new.is_empty() && changes.gone.is_empty());
    }
}
