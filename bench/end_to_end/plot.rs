//! Plots as SVG: latency by percentile, throughput against CPU time.

use std::fmt::Write as _;
use std::path::Path;

/// Colours that can be told apart, one a program.
const COLOURS: [&str; 8] =
    ["#888888", "#d62728", "#ff9896", "#1f77b4", "#17becf", "#aec7e8", "#2ca02c", "#9467bd"];

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// A line of more points than this has no marks.
const MARKS_MAX: usize = 20;

/// One program's points.
pub(crate) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// One axis.
pub(crate) struct Axis {
    pub title: String,
    pub scale: Scale,
}

/// Where values and labels stand on an axis, in ticks.
pub(crate) enum Scale {
    /// From a power of ten to another.
    Logarithmic,
    /// From 0 on, in ten steps.
    Linear {
        /// Of one tick.
        step: f64,
    },
    /// Values are 0, 1, 2 and so on, with these names.
    Named(Vec<String>),
}

impl Axis {
    pub(crate) fn logarithmic(title: &str) -> Axis {
        Axis { title: title.to_owned(), scale: Scale::Logarithmic }
    }

    /// An axis from 0 to at least this value.
    pub(crate) fn linear(title: &str, value_max: f64) -> Axis {
        let step = [1.0, 2.0, 5.0]
            .iter()
            .flat_map(|digit| (0..7).map(move |power| digit * 10_f64.powi(power)));
        let fits = step.filter(|step| value_max <= step * 10.0).fold(f64::INFINITY, f64::min);
        Axis { title: title.to_owned(), scale: Scale::Linear { step: fits } }
    }

    fn place(&self, value: f64) -> f64 {
        match &self.scale {
            Scale::Logarithmic => value.max(1e-6).log10(),
            Scale::Linear { step } => value / step,
            Scale::Named(_) => value,
        }
    }

    /// The first and the last tick for these values.
    fn bounds(&self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let places = values.map(|value| self.place(value));
        match &self.scale {
            Scale::Named(names) => (0.0, (names.len() - 1) as f64),
            Scale::Linear { .. } => (0.0, places.fold(1.0, f64::max).ceil()),
            Scale::Logarithmic => {
                let low = places.clone().fold(f64::INFINITY, f64::min).floor();
                let high = places.fold(f64::NEG_INFINITY, f64::max).ceil();
                (low, high.max(low + 1.0))
            }
        }
    }

    fn label(&self, tick: i32) -> String {
        match &self.scale {
            Scale::Logarithmic => format!("{}", 10_f64.powi(tick)),
            Scale::Linear { step } => format!("{}", f64::from(tick) * step),
            Scale::Named(names) => names[tick as usize].clone(),
        }
    }
}

/// Writes a plot of lines, or of points where a series has but one.
pub(crate) fn write(path: &Path, title: &str, x: &Axis, y: &Axis, series: &[Series]) {
    let points = series.iter().flat_map(|series| &series.points);
    let (x_low, x_high) = x.bounds(points.clone().map(|point| point.0));
    let (y_low, y_high) = y.bounds(points.map(|point| point.1));
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let across = |place: f64| LEFT + (place - x_low) / (x_high - x_low) * (right - LEFT);
    let down = |place: f64| bottom - (place - y_low) / (y_high - y_low) * (bottom - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let text = |x: f64, y: f64, anchor: &str, text: &str| {
        format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
    };
    let line = |from: (f64, f64), to: (f64, f64)| {
        let ((x1, y1), (x2, y2)) = (from, to);
        format!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>\n")
    };
    svg += &text(LEFT, TOP - 16.0, "start", title);
    svg += &text((LEFT + right) / 2.0, HEIGHT - 12.0, "middle", &x.title);
    svg += &text(12.0, TOP - 16.0, "start", &y.title);
    for tick in x_low as i32..=x_high as i32 {
        let place = across(tick.into());
        svg += &line((place, TOP), (place, bottom));
        svg += &text(place, bottom + 18.0, "middle", &x.label(tick));
    }
    for tick in y_low as i32..=y_high as i32 {
        let place = down(tick.into());
        svg += &line((LEFT, place), (right, place));
        svg += &text(LEFT - 8.0, place + 4.0, "end", &y.label(tick));
    }
    for (number, series) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let places = series.points.iter().map(|(a, b)| (across(x.place(*a)), down(y.place(*b))));
        let mut path = String::new();
        for (index, (x, y)) in places.enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            write!(path, "{command}{x:.1} {y:.1}").expect("a string takes it");
            if series.points.len() <= MARKS_MAX {
                svg +=
                    &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\n");
            }
        }
        svg += &format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>\n");
        let row = TOP + 20.0 * number as f64;
        svg +=
            &format!("<circle cx=\"{}\" cy=\"{row}\" r=\"5\" fill=\"{colour}\"/>\n", right + 20.0);
        svg += &text(right + 32.0, row + 4.0, "start", &series.name);
    }
    svg += "</svg>\n";
    std::fs::write(path, svg).expect("the folder can be written");
}
