use crate::frame::{self, Begin, DeliveryState, Disposition, Performative, Role};

/// Bytes for the peer, with the last dispositions held back because their range may still grow.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    range: Option<Range>,
}

/// Consecutive deliveries with the same outcome. All dispositions that this side sends are settled.
#[derive(Debug)]
struct Range {
    channel: u16,
    role: Role,
    state: DeliveryState,
    first: u32,
    last: u32,
}

impl Output {
    /// Returns all bytes for the peer; the caller removes those that were sent.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        self.flush();
        &mut self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn frame(&mut self, channel: u16, performative: &Performative) {
        frame::encode(self.bytes(), channel, performative, &[]);
    }

    pub(super) fn begin(&mut self, channel: u16, begin: Begin) {
        self.frame(channel, &Performative::Begin(Box::new(begin)));
    }

    /// Settles a delivery.
    pub(super) fn settle(
        &mut self,
        channel: u16,
        role: Role,
        number: u32,
        state: Option<&DeliveryState>,
    ) {
        let Some(state) = state.filter(|state| is_plain(state)) else {
            let state = state.cloned();
            let settled = true;
            let disposition = Disposition { role, first: number, last: None, settled, state };
            return self.frame(channel, &Performative::Disposition(disposition));
        };
        match &mut self.range {
            Some(range)
                if range.last.wrapping_add(1) == number
                    && range.channel == channel
                    && range.role == role
                    && range.state == *state =>
            {
                range.last = number;
            }
            _ => {
                self.flush();
                let (first, last, state) = (number, number, state.clone());
                self.range = Some(Range { channel, role, state, first, last });
            }
        }
    }

    fn flush(&mut self) {
        if let Some(Range { channel, role, state, first, last }) = self.range.take() {
            let last = (last != first).then_some(last);
            let disposition = Disposition { role, first, last, settled: true, state: Some(state) };
            let disposition = Performative::Disposition(disposition);
            frame::encode(&mut self.bytes, channel, &disposition, &[]);
        }
    }
}

/// Whether the state is one that many deliveries share.
fn is_plain(state: &DeliveryState) -> bool {
    matches!(
        state,
        DeliveryState::Accepted | DeliveryState::Released | DeliveryState::Rejected(None)
    )
}
