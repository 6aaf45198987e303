//! How many windows fit along an axis of an image. Nothing is rounded: windows that leave a rest
//! are an error.

use std::fmt;

/// Windows along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along {
    pub count: u64,
    /// Elements before the image at which the first one begins.
    pub before: u64,
}

/// Why windows do not cover an axis exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowsError {
    pub code: &'static str,
    pub title: String,
    pub help: String,
}

impl fmt::Display for WindowsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)
    }
}

impl std::error::Error for WindowsError {}

/// Windows of `window` elements, one every `stride`, along an axis of `length`: with `padding`
/// elements on each side there are (length + 2 padding - window) / stride + 1; with None (`same`)
/// there are length / stride, and max(window - stride, 0) elements are added, the odd one last.
///
/// # Errors
/// Where that is no whole number from 1.
pub fn windows_along(
    length: u64,
    window: u64,
    stride: u64,
    padding: Option<u64>,
) -> Result<Along, WindowsError> {
    let error = |code, title: String, help: String| Err(WindowsError { code, title, help });
    if window == 0 || stride == 0 {
        let title = format!("a window of {window} every {stride} elements");
        return error("M0112", title, "both count from 1".into());
    }
    let Some(padding) = padding else {
        if !length.is_multiple_of(stride) {
            let (rest, near) = (length % stride, length - length % stride);
            let title = format!("stride {stride} does not divide {length}: {rest} left over");
            let help = format!("use {near} or {} elements, or another stride", near + stride);
            return error("M0204", title, help);
        }
        let before = window.saturating_sub(stride) / 2;
        return Ok(Along { count: length / stride, before });
    };
    if padding >= window {
        let title = format!("padding {padding} makes windows of {window} that see no image");
        return error("M0112", title, format!("use at most {}", window - 1));
    }
    let Some(room) = length.saturating_add(2 * padding).checked_sub(window) else {
        let title = format!("a window of {window} does not fit into {}", length + 2 * padding);
        return error("M0211", title, "use a smaller window or more padding".into());
    };
    if room % stride != 0 {
        let sum = if padding == 0 { String::new() } else { format!(" + 2 * {padding}") };
        let title = format!(
            "stride {stride} does not divide {length}{sum} - {window} = {room}: {} left over",
            room % stride
        );
        let fits = (0..window)
            .find(|p| (length + 2 * p).checked_sub(window).is_some_and(|room| room % stride == 0));
        let same =
            length.is_multiple_of(stride).then(|| "`padding = same`, or `Conv2dSame`".to_owned());
        let number = fits.map(|p| format!("`padding = {p}`"));
        let ways: Vec<String> = number.into_iter().chain(same).collect();
        let help = match ways.is_empty() {
            true => "use another stride or another window".to_owned(),
            false => format!("it fits with {}", ways.join(" or ")),
        };
        return error("M0204", title, help);
    }
    Ok(Along { count: room / stride + 1, before: padding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_formula() {
        let fine = |l, w, s, p| windows_along(l, w, s, p).map(|a| (a.count, a.before));
        assert_eq!(fine(8, 3, 1, Some(0)), Ok((6, 0)));
        assert_eq!(fine(8, 3, 1, Some(1)), Ok((8, 1)));
        assert_eq!(fine(8, 2, 2, Some(0)), Ok((4, 0)));
        assert_eq!(fine(8, 3, 2, None), Ok((4, 0)));
        assert_eq!(fine(224, 7, 2, None), Ok((112, 2)));
        assert_eq!(fine(8, 1, 2, None), Ok((4, 0)));
        let wrong = |l, w, s, p| windows_along(l, w, s, p).unwrap_err();
        let e = wrong(8, 3, 2, Some(1));
        assert_eq!(e.title, "stride 2 does not divide 8 + 2 * 1 - 3 = 7: 1 left over");
        assert_eq!(e.help, "it fits with `padding = same`, or `Conv2dSame`");
        assert_eq!(wrong(9, 3, 2, None).code, "M0204");
        assert_eq!(wrong(2, 3, 1, Some(0)).code, "M0211");
        assert_eq!(wrong(4, 3, 1, Some(3)).code, "M0112");
        assert_eq!(wrong(4, 3, 0, None).code, "M0112");
    }
}
