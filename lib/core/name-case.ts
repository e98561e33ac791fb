/**
 * Names as JavaScript and as PyTorch spell them: `weightDecay` and `weight_decay`, `TMax` and
 * `T_max`.
 */

/**
 * `weightDecay` as `weight_decay`, `TMax` as `T_max`, `T0` as `T_0`; a name in snake_case stays as
 * it is.
 */
export function snakeCase(name: string): string {
  return name
    .replace(/(?<=.)[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    .replace(/(?<=[A-Z])\d/, (digit) => `_${digit}`);
}

/**
 * `weight_decay` as `weightDecay`, `T_max` as `TMax`, `T_0` as `T0`; a name in camelCase stays as
 * it is.
 */
export function camelCase(name: string): string {
  return name.replace(/(?<=[^_])_([a-z\d])/g, (_, letter: string) => letter.toUpperCase());
}
