//! Mobile hosts: their movement, and their attachment to cells. Their registration is in
//! [`holdover_mobility::mobile_ip`].

mod config;
mod mobile;
mod track;

pub use config::{
    Attachment, Beacons, CellId, MobileHost, Movement, Path, Prediction, RadioCell, Registration, Repeat, Selection,
    Stop, Visit, Visits,
};
pub use holdover_mobility::mobile_ip::RegisterOn;
pub(crate) use mobile::{Foresight, Mobile};
