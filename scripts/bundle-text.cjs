/** What bundles of the library get that esbuild does not give them. */

/**
 * A class that speaks of itself becomes `Tensor = class _Tensor` in a bundle of esbuild:
 * programs, printed modules and messages know the first name. esbuild's own `keepNames` would name
 * every closure whenever it is made.
 */
const nameClasses = (text) =>
  text.replace(
    /\b(\w+) = class _\1\b.*\{$/gm,
    (line, name) => `${line} static { Object.defineProperty(this, "name", { value: "${name}" }); }`,
  );

/**
 * Above an uncaught error Node prints the line that threw it: code of the library, which says
 * nothing to the program. Node leaves out a line that has this text.
 */
const UNPRINTED = '/*node-do-not-add-exception-line*/';

/** Marks the lines that throw or construct an error. */
const unprintThrows = (text) =>
  text.replace(/^([ \t]*)(?=(?:.*(?:\)|else) )?throw |.*\bnew \w*Error\d*\()/gm, `$1${UNPRINTED}`);

/** Editors read the comments of declarations; esbuild keeps those of sources, a fifteenth of a bundle. */
const withoutComments = (text) => text.replace(/^[ \t]*\/\*\*(?:[^*]|\*(?!\/))*\*\/\n/gm, '');

/** Hints for another bundler, which must not bundle the library. */
const withoutHints = (text) => text.replaceAll('/* @__PURE__ */ ', '');

/** The text of a bundle as it is written. */
exports.bundleText = (text) => unprintThrows(nameClasses(withoutHints(withoutComments(text))));
