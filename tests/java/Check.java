import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** A static method that takes a {@link Scene} and throws if what it looks at is not as it should be. */
@Retention(RetentionPolicy.RUNTIME)
@interface Check {
}
