//! Mobile hosts: how they move, and how they attach to cells. How they register is [`holdover_mobility::mobile_ip`]'s.

mod config;
mod mobile;
mod track;

pub use config::{
    Attachment, Beacons, CellId, MobileHost, Movement, Path, Prediction, RadioCell, Registration, Repeat, Selection,
    Stop, Visit, Visits,
};
pub use holdover_mobility::mobile_ip::RegisterOn;
pub(crate) use mobile::{Foresight, Mobile};
