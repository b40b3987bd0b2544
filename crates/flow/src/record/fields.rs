//! Writing and reading the fields of a record by one list of them.

/// One pass over the fields of a record, which writes or reads each of them; `None` if bytes are missing.
pub(super) trait Fields {
    fn bytes(&mut self, bytes: &mut [u8]) -> Option<()>;

    fn u8(&mut self, number: &mut u8) -> Option<()> {
        let mut bytes = [*number];
        self.bytes(&mut bytes)?;
        [*number] = bytes;
        Some(())
    }

    fn u16(&mut self, number: &mut u16) -> Option<()> {
        let mut bytes = number.to_be_bytes();
        self.bytes(&mut bytes)?;
        *number = u16::from_be_bytes(bytes);
        Some(())
    }

    fn u32(&mut self, number: &mut u32) -> Option<()> {
        let mut bytes = number.to_be_bytes();
        self.bytes(&mut bytes)?;
        *number = u32::from_be_bytes(bytes);
        Some(())
    }
}

impl Fields for Vec<u8> {
    fn bytes(&mut self, bytes: &mut [u8]) -> Option<()> {
        self.extend_from_slice(bytes);
        Some(())
    }
}

/// Bytes that are read.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl Fields for Input<'_> {
    fn bytes(&mut self, bytes: &mut [u8]) -> Option<()> {
        let (read, rest) = self.0.split_at_checked(bytes.len())?;
        bytes.copy_from_slice(read);
        self.0 = rest;
        Some(())
    }
}
