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
            // The call has no way to say no, so a guest that asks for its preopens without end is stopped.
            let Ok(seat) = self.ctx.seats.take() else {
                return Err(wasmtime::format_err!("the guest holds more than {} files and directories open", super::OPEN_MAX));
            };
            let descriptor = self.table.push(Descriptor {
                handle: preopen.filesystem.root(),
                directory: true,
                flags: DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
                _seat: seat,
            })?;
            directories.push((descriptor, preopen.path.clone()));
        }
        Ok(directories)
    }
}
