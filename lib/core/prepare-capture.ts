/**
 * Objects with this method make, before a function that gets them is captured, what they would else
 * make at their first use: an optimizer makes its state. Every run of the graph goes on with it.
 *
 * @internal
 */
export const PREPARE_CAPTURE: unique symbol = Symbol('prepareCapture');

/** @internal */
export interface PreparesCapture {
  [PREPARE_CAPTURE](): void;
}
