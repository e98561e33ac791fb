/** Text in pictures. */

/** What XML 1.0 forbids, even as a number. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for.
const FORBIDDEN = /[\0-\x08\v\f\x0e-\x1f\ufffe\uffff\p{Surrogate}]/gu;

/** Text as SVG has it; what it cannot have is U+FFFD. @internal */
export const escaped = (text: string): string =>
  text.replace(FORBIDDEN, '\ufffd').replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
