/**
 * A class that speaks of itself becomes `Tensor = class _Tensor` in a bundle of esbuild:
 * programs, printed modules and messages know the first name. esbuild's own `keepNames` would name
 * every closure whenever it is made.
 */
exports.nameClasses = (text) =>
  text.replace(
    /\b(\w+) = class _\1\b.*\{$/gm,
    (line, name) => `${line} static { Object.defineProperty(this, "name", { value: "${name}" }); }`,
  );
