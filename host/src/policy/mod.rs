//! What an agent may do. A denial is a value that says which line of the configuration would allow it.

pub mod grants;
