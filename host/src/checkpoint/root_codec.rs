//! The two forms of a root record.
//!
//! *Canonical*: deterministic CBOR (RFC 8949 section 4.2) without hints; its hash is the checkpoint's id, so content that is packed again
//! keeps its id. *JSON*: what heads and run records hold, with the hints that say where the root pages lie. Hints name their home in full,
//! so a record means the same in a fork's head as in its parent's.

use std::sync::Arc;

use minicbor::Encoder;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::frame::{FRAME_HEADER, FRAME_PLAIN_MAX, FRAME_STORED_MAX};
use super::pack::PACK_MAX;
use super::root::{Checkpoint, RootRecord};
use crate::error::{Error, Result};
use crate::id::{CheckpointId, Digest, PackId, PageId, SessionRef};
use crate::pin::{OnBranch, Pin};
use crate::workspace::page::{Home, Location, PageLink, Place, Root};

/// The bytes before the canonical form under the hash: no other object's hash can be a checkpoint's id.
pub const CHECKPOINT_TAG: &[u8] = b"landfall:checkpoint:1\0";

const VERSION: u8 = 1;

/// Returns a root record's canonical form: `[version, workspace, state, git / null, pin / null]`.
///
/// A root is `[page id, link table's page id / null, entries, bytes]`, a pin `[url, branch / null, commit, on_branch: 0 unchecked, 1 yes]`.
#[must_use]
pub fn canonical(record: &RootRecord) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut e = Encoder::new(&mut out);
    // Writing to a Vec can't fail.
    let _ = (|| {
        e.array(5)?.u8(VERSION)?;
        for root in [Some(&record.workspace), Some(&record.state), record.git.as_ref()] {
            let Some(root) = root else {
                e.null()?;
                continue;
            };
            e.array(4)?.bytes(root.page.id.as_bytes())?;
            match &root.links {
                Some(links) => e.bytes(links.id.as_bytes())?,
                None => e.null()?,
            };
            e.u64(root.entries)?.u64(root.bytes)?;
        }
        match &record.pin {
            None => e.null()?,
            Some(pin) => {
                e.array(4)?.str(&pin.url)?;
                match &pin.branch {
                    Some(branch) => e.str(branch)?,
                    None => e.null()?,
                };
                e.bytes(pin.commit.as_bytes())?.u8(match pin.on_branch {
                    OnBranch::Unchecked => 0,
                    OnBranch::Yes => 1,
                })?
            }
        };
        Ok::<_, minicbor::encode::Error<std::convert::Infallible>>(())
    })();
    out
}

impl Checkpoint {
    /// Names a root record by the SHA-256 of [`CHECKPOINT_TAG`] and its canonical form.
    #[must_use]
    pub fn new(root: RootRecord) -> Self {
        let digest = Sha256::new().chain_update(CHECKPOINT_TAG).chain_update(canonical(&root)).finalize();
        Self { id: CheckpointId::from_bytes(digest.into()), root }
    }
}

/// Checks that a location can be one: inside a pack and a frame of the allowed sizes.
///
/// # Errors
/// `Damaged` (code `hint_damaged`).
pub fn check_location(at: &Location) -> Result<()> {
    let (frame, stored, start, len) = (at.frame as usize, at.stored as usize, at.start as usize, at.len as usize);
    if (FRAME_HEADER + 1..=FRAME_STORED_MAX).contains(&stored)
        && frame.saturating_add(stored) <= PACK_MAX
        && len > 0
        && start.saturating_add(len) <= FRAME_PLAIN_MAX
    {
        return Ok(());
    }
    Err(Error::damaged(format!("no object can lie at byte {frame}+{stored} of pack {}, {start}+{len} of its frame", at.pack))
        .code("hint_damaged"))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HomeForm {
    Session(SessionRef),
    Repository(Digest),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageForm {
    id: PageId,
    home: HomeForm,
    pack: PackId,
    frame: u32,
    stored: u32,
    start: u32,
    len: u32,
}

impl PageForm {
    fn from_link(link: &PageLink) -> Result<Self> {
        let Place::At(at) = &link.place else {
            return Err(Error::internal(format!("page {} is in no sealed pack yet, so a record can't hold it", link.id)));
        };
        let home = match &*at.home {
            Home::Session(session) => HomeForm::Session(session.clone()),
            Home::Repository(digest) => HomeForm::Repository(*digest),
        };
        Ok(Self { id: link.id, home, pack: at.pack, frame: at.frame, stored: at.stored, start: at.start, len: at.len })
    }

    fn into_link(self) -> Result<PageLink> {
        let home = Arc::new(match self.home {
            HomeForm::Session(session) => Home::Session(session),
            HomeForm::Repository(digest) => Home::Repository(digest),
        });
        let at = Location { home, pack: self.pack, frame: self.frame, stored: self.stored, start: self.start, len: self.len };
        check_location(&at)?;
        Ok(PageLink { id: self.id, place: Place::At(at) })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootForm {
    page: PageForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    links: Option<PageForm>,
    entries: u64,
    bytes: u64,
}

impl RootForm {
    fn from_root(root: &Root) -> Result<Self> {
        let links = root.links.as_ref().map(PageForm::from_link).transpose()?;
        Ok(Self { page: PageForm::from_link(&root.page)?, links, entries: root.entries, bytes: root.bytes })
    }

    fn into_root(self) -> Result<Root> {
        let links = self.links.map(PageForm::into_link).transpose()?;
        Ok(Root { page: self.page.into_link()?, links, entries: self.entries, bytes: self.bytes })
    }
}

impl Serialize for Root {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RootForm::from_root(self).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Root {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RootForm::deserialize(deserializer)?.into_root().map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordForm {
    workspace: Root,
    state: Root,
    #[serde(default)]
    git: Option<Root>,
    #[serde(default)]
    pin: Option<Pin>,
}

#[derive(Serialize)]
struct RecordView<'a> {
    workspace: &'a Root,
    state: &'a Root,
    #[serde(skip_serializing_if = "Option::is_none")]
    git: Option<&'a Root>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<&'a Pin>,
}

/// The form with hints. Fails for a record whose pages aren't in sealed packs.
impl Serialize for RootRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RecordView { workspace: &self.workspace, state: &self.state, git: self.git.as_ref(), pin: self.pin.as_ref() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RootRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RecordForm { workspace, state, git, pin } = RecordForm::deserialize(deserializer)?;
        Ok(Self { workspace, state, git, pin })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointForm {
    id: CheckpointId,
    root: RootRecord,
}

#[derive(Serialize)]
struct CheckpointView<'a> {
    id: &'a CheckpointId,
    root: &'a RootRecord,
}

/// The form with hints: `{"id", "root"}`.
impl Serialize for Checkpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CheckpointView { id: &self.id, root: &self.root }.serialize(serializer)
    }
}

/// Refuses an id that isn't the record's.
impl<'de> Deserialize<'de> for Checkpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let CheckpointForm { id, root } = CheckpointForm::deserialize(deserializer)?;
        let checkpoint = Self::new(root);
        if checkpoint.id == id {
            return Ok(checkpoint);
        }
        Err(serde::de::Error::custom(format!("checkpoint {id} is damaged: its root record has the id {}", checkpoint.id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CommitId;

    fn link(n: u8, pack: u8) -> PageLink {
        let home = Arc::new(Home::Session(SessionRef { agent: "reviewer".parse().unwrap(), session: "fix 42".parse().unwrap() }));
        let at = Location { home, pack: PackId::from_bytes([pack; 32]), frame: 8, stored: 100, start: 0, len: 300 };
        PageLink { id: PageId::from_bytes([n; 32]), place: Place::At(at) }
    }

    fn sample(pack: u8) -> RootRecord {
        let commit = CommitId::from_bytes([0xab; 20]);
        RootRecord {
            workspace: Root { page: link(1, pack), links: Some(link(2, pack)), entries: 20_000, bytes: 82_000_000 },
            state: Root { page: link(3, pack), links: None, entries: 0, bytes: 0 },
            git: None,
            pin: Some(Pin { url: "https://example.org/a".into(), branch: Some("main".into()), commit, on_branch: OnBranch::Yes }),
        }
    }

    #[test]
    fn the_canonical_form_and_the_id_are_pinned() {
        let (one, two, three) = ("01".repeat(32), "02".repeat(32), "03".repeat(32));
        let url = hex::encode("https://example.org/a");
        let text = format!("8501845820{one}5820{two}194e201a04e33880845820{three}f60000f68475{url}646d61696e54{}01", "ab".repeat(20));
        assert_eq!(hex::encode(canonical(&sample(9))), text);
        let mut tagged = b"landfall:checkpoint:1\0".to_vec();
        tagged.extend_from_slice(&hex::decode(text).unwrap());
        assert_eq!(Checkpoint::new(sample(9)).id.to_string(), crate::id::sha256(&tagged).to_string());
        assert_eq!(Checkpoint::new(sample(9)).id.to_string(), "5587249df5aea40005932c16c4194c7364d0090d6624434cd2171fb6d51c4941");
    }

    #[test]
    fn the_id_is_of_the_content_and_not_of_the_hints() {
        let id = Checkpoint::new(sample(9)).id;
        assert_eq!(Checkpoint::new(sample(8)).id, id);
        type Change = fn(&mut RootRecord);
        let changes: [Change; 8] = [
            |r| r.workspace.page = link(7, 9),
            |r| r.workspace.links = None,
            |r| r.state.entries = 1,
            |r| r.state.bytes = 1,
            |r| r.git = Some(r.state.clone()),
            |r| r.pin = None,
            |r| r.pin.as_mut().unwrap().branch = None,
            |r| r.pin.as_mut().unwrap().on_branch = OnBranch::Unchecked,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut other = sample(9);
            change(&mut other);
            assert_ne!(Checkpoint::new(other).id, id, "change {n}");
        }
    }

    #[test]
    fn the_json_form_keeps_the_hints() {
        let checkpoint = Checkpoint::new(sample(9));
        let json = serde_json::to_value(&checkpoint).unwrap();
        assert_eq!(json["root"]["workspace"]["page"]["home"], serde_json::json!({"session": {"agent": "reviewer", "session": "fix 42"}}));
        assert_eq!(json["root"]["workspace"]["page"]["stored"], 100);
        assert!(json["root"].get("git").is_none());
        assert_eq!(serde_json::from_value::<Checkpoint>(json).unwrap(), checkpoint);

        let mut fresh = sample(9);
        fresh.state.page.place = Place::Fresh;
        assert!(serde_json::to_value(&fresh).is_err());
        let mut imported = sample(9);
        imported.git = Some(sample(9).state);
        if let Place::At(at) = &mut imported.git.as_mut().unwrap().page.place {
            at.home = Arc::new(Home::Repository(crate::id::sha256(b"url")));
        }
        let json = serde_json::to_string(&imported).unwrap();
        assert_eq!(serde_json::from_str::<RootRecord>(&json).unwrap(), imported);
    }

    #[test]
    fn hostile_json_is_refused() {
        let good = serde_json::to_value(Checkpoint::new(sample(9))).unwrap();
        for (pointer, value) in [
            ("/id", serde_json::json!("0".repeat(64))),
            ("/root/workspace/entries", serde_json::json!(1)),
            ("/root/workspace/entries", serde_json::json!(-1)),
            ("/root/workspace/page/stored", serde_json::json!(0)),
            ("/root/workspace/page/stored", serde_json::json!(FRAME_STORED_MAX + 1)),
            ("/root/workspace/page/frame", serde_json::json!(u32::MAX)),
            ("/root/workspace/page/start", serde_json::json!(u32::MAX)),
            ("/root/workspace/page/len", serde_json::json!(0)),
            ("/root/workspace/page/len", serde_json::json!(5_000_000_000_u64)),
            ("/root/workspace/page/pack", serde_json::json!("../../../etc/passwd")),
            ("/root/workspace/page/home", serde_json::json!({"elsewhere": "x"})),
            ("/root/state", serde_json::json!(null)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value.clone();
            assert!(serde_json::from_value::<Checkpoint>(bad).is_err(), "{pointer} = {value}");
        }
        let mut bad = good;
        bad["root"]["extra"] = serde_json::json!(1);
        assert!(serde_json::from_value::<Checkpoint>(bad).is_err());
    }
}
