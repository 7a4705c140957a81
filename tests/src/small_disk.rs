//! A small file system of its own, for tests of full and read-only disks.

#![expect(clippy::unwrap_used, reason = "a test can't go on without it")]

use std::path::Path;
use std::process::Command;

/// A mounted file system. It ends with its value.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts one with these options, such as `size=256k`; none, with the reason on stdout, where this user may not mount anything.
    ///
    /// # Panics
    /// When there is no folder to be had.
    #[must_use]
    pub fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(folder)),
            other => {
                #[expect(clippy::print_stdout, reason = "a skipped test says why")]
                {
                    println!("skipped: no file system could be mounted for this test ({other:?})");
                }
                None
            }
        }
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Changes its options, such as `ro` or a larger `size`.
    ///
    /// # Panics
    /// When that can't be done.
    pub fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status().unwrap();
        assert!(status.success());
    }

    /// Writes a file until nothing more goes in.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.path().join("filler")).unwrap();
        while std::io::Write::write(&mut file, &[0xaa; 4096]).is_ok_and(|written| written > 0) {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
