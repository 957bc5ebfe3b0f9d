import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.UUID;
import org.apache.iceberg.transforms.Transform;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.BinaryUtil;
import org.apache.iceberg.util.DecimalUtil;
import org.apache.iceberg.util.UnicodeUtil;

/**
 * What Iceberg's Java library makes of values: a line "type TAB transform TAB value" in, a line with
 * the result out. Beside partition transforms there are lower[n] and upper[n], the bounds of columns
 * in the metrics of a file. How values are spelled is said in transform_cases.py.
 */
public class Transforms {
  private static final int SHOWN_MAX = 64;

  public static void main(String[] args) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] parts = line.split("\t", -1);
      Type.PrimitiveType type = Types.fromPrimitiveString(parts[0]);
      out.println(result(type, parts[1], parts[2]));
    }
  }

  private static String result(Type.PrimitiveType type, String name, String text) throws Exception {
    int width = name.endsWith("]") ? Integer.parseInt(name.replaceAll("\\D", "")) : 0;
    if (name.startsWith("lower") || name.startsWith("upper")) {
      return say(type, bound(parse(type, text), name.startsWith("upper"), width));
    }
    @SuppressWarnings("unchecked")
    Transform<Object, Object> transform =
        (Transform<Object, Object>) org.apache.iceberg.transforms.Transforms.fromString(name);
    if (!transform.canTransform(type)) {
      return "refused";
    }
    Object found = transform.bind(type).apply(parse(type, text));
    return say((Type.PrimitiveType) transform.getResultType(type), found);
  }

  private static Object bound(Object value, boolean upper, int width) {
    if (value instanceof String) {
      String told = (String) value;
      return upper
          ? UnicodeUtil.truncateStringMax(told, width)
          : UnicodeUtil.truncateStringMin(told, width);
    }
    ByteBuffer told = (ByteBuffer) value;
    return upper
        ? BinaryUtil.truncateBinaryMax(told, width)
        : BinaryUtil.truncateBinaryMin(told, width);
  }

  private static Object parse(Type.PrimitiveType type, String text) {
    switch (type.typeId()) {
      case BOOLEAN:
        return Boolean.valueOf(text);
      case INTEGER:
      case DATE:
        return Integer.valueOf(text);
      case LONG:
      case TIME:
      case TIMESTAMP:
      case TIMESTAMP_NANO:
        return Long.valueOf(text);
      case FLOAT:
        return Float.intBitsToFloat(Integer.parseUnsignedInt(text, 16));
      case DOUBLE:
        return Double.longBitsToDouble(Long.parseUnsignedLong(text, 16));
      case DECIMAL:
        return new BigDecimal(new BigInteger(text), ((Types.DecimalType) type).scale());
      case STRING:
        return new String(bytes(text), StandardCharsets.UTF_8);
      case UUID:
        ByteBuffer halves = ByteBuffer.wrap(bytes(text));
        return new UUID(halves.getLong(), halves.getLong());
      default:
        return ByteBuffer.wrap(bytes(text));
    }
  }

  private static byte[] bytes(String text) {
    String[] parts = text.split("\\*");
    return HexFormat.of().parseHex(parts.length > 1 ? parts[0].repeat(Integer.parseInt(parts[1])) : parts[0]);
  }

  private static String say(Type.PrimitiveType type, Object value) throws Exception {
    if (value == null) {
      return "null";
    } else if (value instanceof Float) {
      return HexFormat.of().toHexDigits(Float.floatToIntBits((Float) value));
    } else if (value instanceof Double) {
      return HexFormat.of().toHexDigits(Double.doubleToLongBits((Double) value));
    } else if (value instanceof BigDecimal) {
      return decimal((Types.DecimalType) type, (BigDecimal) value);
    } else if (value instanceof UUID) {
      UUID uuid = (UUID) value;
      return hex(
          ByteBuffer.allocate(16)
              .putLong(uuid.getMostSignificantBits())
              .putLong(uuid.getLeastSignificantBits())
              .array());
    } else if (value instanceof CharSequence) {
      return hex(value.toString().getBytes(StandardCharsets.UTF_8));
    } else if (value instanceof ByteBuffer) {
      ByteBuffer view = ((ByteBuffer) value).duplicate();
      byte[] found = new byte[view.remaining()];
      view.get(found);
      return hex(found);
    }
    return value.toString();
  }

  /** As manifests write it, or that they cannot. */
  private static String decimal(Types.DecimalType type, BigDecimal value) {
    byte[] room = new byte[org.apache.iceberg.types.TypeUtil.decimalRequiredBytes(type.precision())];
    try {
      DecimalUtil.toReusedFixLengthBytes(type.precision(), type.scale(), value, room);
    } catch (IllegalArgumentException error) {
      return "cannot be written";
    }
    return value.unscaledValue().toString();
  }

  private static String hex(byte[] found) throws Exception {
    if (found.length <= SHOWN_MAX) {
      return HexFormat.of().formatHex(found);
    }
    byte[] digest = MessageDigest.getInstance("SHA-256").digest(found);
    return found.length + " bytes " + HexFormat.of().formatHex(digest, 0, 8);
  }
}
