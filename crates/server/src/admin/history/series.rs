//! Values over time, in a fixed amount of memory: fine for the last hour, coarse for the last day.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of values that are kept at each distance.
const KEPT: usize = 720;

/// Number of fine points that become one coarse point.
const MERGED: u32 = 24;

/// The distance of two points in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Those of the last hour.
    Fine,
    /// Those of the last day.
    Coarse,
}

impl Step {
    /// All steps, the finest first.
    pub const ALL: [Self; 2] = [Self::Fine, Self::Coarse];

    /// The time between two points.
    pub const fn duration(self) -> Duration {
        match self {
            Self::Fine => Duration::from_secs(5),
            Self::Coarse => Duration::from_secs(5 * MERGED as u64),
        }
    }
}

/// Points with `N` values each.
#[derive(Debug)]
pub struct Series<const N: usize> {
    fine: VecDeque<[f32; N]>,
    coarse: VecDeque<[f32; N]>,
    /// The sum of the fine points that are not in a coarse one yet, and their number.
    merging: ([f64; N], u32),
}

impl<const N: usize> Series<N> {
    /// A series without points.
    pub fn new() -> Self {
        Self { fine: VecDeque::new(), coarse: VecDeque::new(), merging: ([0.0; N], 0) }
    }

    /// Adds a point, [`Step::Fine`] after the last one.
    pub fn push(&mut self, point: [f64; N]) {
        push(&mut self.fine, point.map(|value| value as f32));
        let (sums, count) = &mut self.merging;
        sums.iter_mut().zip(point).for_each(|(sum, value)| *sum += value);
        *count += 1;
        if *count == MERGED {
            let means = sums.map(|sum| (sum / f64::from(MERGED)) as f32);
            push(&mut self.coarse, means);
            self.merging = ([0.0; N], 0);
        }
    }

    /// The points at a distance, the oldest first.
    pub fn points(&self, step: Step) -> impl DoubleEndedIterator<Item = &[f32; N]> {
        match step {
            Step::Fine => self.fine.iter(),
            Step::Coarse => self.coarse.iter(),
        }
    }

    /// Number of fine points since the last one of which `is_wanted` holds; `None`: it holds of none.
    pub fn since(&self, is_wanted: impl Fn(&[f32; N]) -> bool) -> Option<usize> {
        self.fine.iter().rev().position(is_wanted)
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() == KEPT {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_fine_and_a_day_is_coarse() {
        let mut series = Series::<1>::new();
        let all = KEPT * MERGED as usize + 30;
        for point in 0..all {
            series.push([point as f64]);
        }
        let fine: Vec<_> = series.points(Step::Fine).collect();
        assert_eq!((fine.len(), fine[0][0]), (KEPT, (all - KEPT) as f32));
        assert_eq!(fine[KEPT - 1][0], (all - 1) as f32);
        let coarse: Vec<_> = series.points(Step::Coarse).collect();
        assert_eq!(coarse.len(), KEPT, "the first was dropped");
        assert_eq!(coarse[0][0], 24.0 + 11.5, "the mean of 24 to 47");
        assert_eq!(series.since(|[value]| *value < (all - 3) as f32), Some(3));
        assert_eq!(series.since(|[value]| *value < 0.0), None);
    }
}
