//! `wasi:filesystem/preopens`.

use wasmtime::component::Resource;

use super::FilesystemView;
use super::bindings::wasi::filesystem::preopens;
use super::bindings::wasi::filesystem::types::DescriptorFlags;
use super::descriptor::Descriptor;

impl preopens::Host for FilesystemView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let mut directories = Vec::with_capacity(self.ctx.preopens.len());
        for preopen in &self.ctx.preopens {
            // They take no seat: the call has no way to say no, and C libraries make it late. A guest that asks for them without end
            // is stopped by the table's own limit.
            let descriptor = self.table.push(Descriptor {
                handle: preopen.filesystem.root(),
                directory: true,
                flags: DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
                _seat: None,
            })?;
            directories.push((descriptor, preopen.path.clone()));
        }
        Ok(directories)
    }
}
