//! Header prediction: cache lines that note packets which only continue the one before (`c/header_prediction.h`).

use holdover_filter::Direction;

use crate::layout::{Key, PREDICT_FREE, PREDICT_KIND, PREDICTION_PLACES_BITS, Prediction};
use crate::{ffi, key};

/// The number of predictions in the kernel's table: two for each place.
pub const PREDICTIONS: u32 = 2 << PREDICTION_PLACES_BITS;

/// The predictions of one flow, outgoing packets first.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Place([Prediction; 2]);

impl Place {
    /// Frees the prediction for packets in `direction`, if it belongs to the flow.
    pub fn free(&mut self, key: &Key, direction: Direction) {
        ffi::free_prediction(&mut self.0[usize::from(key::to_raw(direction))], key);
    }

    pub(crate) const fn predictions_mut(&mut self) -> &mut [Prediction; 2] {
        &mut self.0
    }

    /// The predictions, outgoing packets first.
    pub const fn predictions(&self) -> &[Prediction; 2] {
        &self.0
    }
}

impl Prediction {
    /// The index of a flow's prediction for packets in `direction`, in the kernel's table. The two directions are
    /// neighbours, outgoing packets first.
    pub fn number(key: &Key, direction: Direction) -> u32 {
        ffi::prediction_number(key, key::to_raw(direction))
    }

    /// Whether packets of this flow are predicted.
    pub fn is_active(&self, key: &Key) -> bool {
        ffi::is_active(self, key)
    }

    /// Whether no flow has claimed it.
    pub const fn is_free(&self) -> bool {
        self.state & PREDICT_KIND == PREDICT_FREE
    }

    /// The flow that has claimed it.
    pub const fn key(&self) -> Key {
        self.key
    }
}
